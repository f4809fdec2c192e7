package service

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heap returns the live heap with stacks after the last collection, and the heap goal of the next collection, in bytes.
func heap() (kept, goal float64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(samples)
	return float64(samples[0].Value.Uint64() + samples[1].Value.Uint64()), float64(samples[2].Value.Uint64())
}

// TestGarbage: the collector must allow as much garbage as the live heap, up to mostKept, plus [Garbage], and little
// more.
func TestGarbage(t *testing.T) {
	collectLater()
	for _, size := range []int{6 << 20, 24 << 20, 96 << 20, 192 << 20, 12 << 20} {
		keep := make([]byte, size)
		runtime.GC()
		require.Eventually(t, func() bool {
			kept, goal := heap()
			want := kept + min(kept, mostKept) + Garbage
			return goal >= want-1<<20 && goal < want+4<<20
		}, 10*time.Second, time.Millisecond, "%d MiB kept", size>>20)
		runtime.KeepAlive(keep)
	}
}

// TestPercent: if the live heap is almost empty, the runtime's heap goal is slightly more than [Garbage].
func TestPercent(t *testing.T) {
	require.Equal(t, 900, percentOf(100, 0))
	require.Equal(t, 900, percentOf(100, minKept))
	require.Equal(t, 200, percentOf(100, Garbage))
	require.Equal(t, 400, percentOf(200, Garbage))
	require.Equal(t, 150, percentOf(100, mostKept))
	require.Equal(t, 10, percentOf(100, 1<<30))
}
