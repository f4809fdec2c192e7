package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTogether: those who come while it is done for one share the next call, with all their parts and its error; who
// comes later has one of his own.
func TestTogether(t *testing.T) {
	var shared Together[int]
	var calls [][]int
	failed := errors.New("failed")
	release := make(chan struct{})
	begun := make(chan struct{}, 3)
	do := func(parts []int) error {
		calls = append(calls, parts)
		begun <- struct{}{}
		<-release
		if len(parts) > 1 {
			return failed
		}
		return nil
	}
	var all sync.WaitGroup
	gathered := func(n int) func() bool {
		return func() bool {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			return shared.next != nil && len(shared.next.all) == n
		}
	}
	all.Go(func() { require.NoError(t, shared.Do(do, 1)) })
	<-begun
	for i := range 3 {
		all.Go(func() { require.ErrorIs(t, shared.Do(do, 10+i), failed) })
	}
	require.Eventually(t, gathered(3), time.Minute, time.Millisecond)
	release <- struct{}{}
	release <- struct{}{}
	all.Wait()
	all.Go(func() { require.NoError(t, shared.Do(do, 2)) })
	release <- struct{}{}
	all.Wait()
	require.Len(t, calls, 3)
	require.Equal(t, []int{1}, calls[0])
	require.ElementsMatch(t, []int{10, 11, 12}, calls[1])
	require.Equal(t, []int{2}, calls[2])
}

// TestTurnTogether: epochs that come on at the same time share a transaction, and each is as far then as if it had been
// alone.
func TestTurnTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		const epochs = 40
		id := func(i int) EpochID { return EpochID{testEpoch.Task, uint64(i)} }
		s.turns.doing.Lock()
		var all sync.WaitGroup
		for i := range epochs {
			all.Go(func() { require.NoError(t, s.Complete(t.Context(), id(i), []byte{byte(i)})) })
			if i%2 == 0 {
				all.Go(func() { require.NoError(t, s.Advance(t.Context(), id(i), StateErased)) })
			}
		}
		require.Eventually(t, func() bool {
			s.turns.mu.Lock()
			defer s.turns.mu.Unlock()
			return s.turns.next != nil && len(s.turns.next.all) == epochs*3/2
		}, time.Minute, time.Millisecond)
		before := s.ended.Load()
		s.turns.doing.Unlock()
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
