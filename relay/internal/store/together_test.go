package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTogether: those who come while it is done for one share the next call, with all their labels and its error; who
// comes later has one of his own.
func TestTogether(t *testing.T) {
	var shared together
	var calls [][][]byte
	failed := errors.New("failed")
	release := make(chan struct{})
	begun := make(chan struct{}, 3)
	cut := func(labels [][]byte) error {
		calls = append(calls, labels)
		begun <- struct{}{}
		<-release
		if len(labels) > 1 {
			return failed
		}
		return nil
	}
	var all sync.WaitGroup
	gathered := func(n int) func() bool {
		return func() bool {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			return shared.next != nil && len(shared.next.labels) == n
		}
	}
	all.Go(func() { require.NoError(t, shared.do(cut, []byte{1})) })
	<-begun
	for i := range 3 {
		all.Go(func() { require.ErrorIs(t, shared.do(cut, []byte{10 + byte(i)}), failed) })
	}
	require.Eventually(t, gathered(3), time.Minute, time.Millisecond)
	release <- struct{}{}
	release <- struct{}{}
	all.Wait()
	all.Go(func() { require.NoError(t, shared.do(cut, []byte{2})) })
	release <- struct{}{}
	all.Wait()
	require.Len(t, calls, 3)
	require.Equal(t, [][]byte{{1}}, calls[0])
	require.ElementsMatch(t, [][]byte{{10}, {11}, {12}}, calls[1])
	require.Equal(t, [][]byte{{2}}, calls[2])
}
