package durable

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCoalescer: callers that arrive during a run must share the next run, with all their parts and its error. A caller
// that arrives later must get a run of its own.
func TestCoalescer(t *testing.T) {
	var shared Coalescer[int]
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
	all.Go(func() { require.NoError(t, shared.Do(do, 1)) })
	<-begun
	for i := range 3 {
		all.Go(func() { require.ErrorIs(t, shared.Do(do, 10+i), failed) })
	}
	require.Eventually(t, func() bool { return shared.Waiting() == 3 }, time.Minute, time.Millisecond)
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
