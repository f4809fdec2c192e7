package store

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAdvanceTogether: epochs that change state at the same time must share transactions. Each must reach the same
// state as in a transaction of its own.
func TestAdvanceTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		const epochs = 40
		id := func(i int) EpochID { return EpochID{testEpoch.Task, uint64(i)} }
		var all sync.WaitGroup
		begun, release := make(chan struct{}), make(chan struct{})
		all.Go(func() {
			require.NoError(t, s.changes.Do(func([]*stateChange) error {
				close(begun)
				<-release
				return nil
			}))
		})
		<-begun
		for i := range epochs {
			all.Go(func() { require.NoError(t, s.Complete(t.Context(), id(i), []byte{byte(i)})) })
			if i%2 == 0 {
				all.Go(func() { require.NoError(t, s.Advance(t.Context(), id(i), StateErased)) })
			}
		}
		require.Eventually(t, func() bool { return s.changes.Waiting() == epochs*3/2 }, time.Minute, time.Millisecond)
		before := s.ended.Load()
		close(release)
		all.Wait()
		require.Less(t, s.ended.Load()-before, uint64(epochs/2))
		for i := range epochs {
			end, err := s.End(t.Context(), id(i))
			require.NoError(t, err)
			require.Equal(t, []byte{byte(i)}, end)
			require.Equal(t, []State{StateErased, StateComplete}[i%2], progressOf(t, s, id(i)).State)
		}
	})
}
