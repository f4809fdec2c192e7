package service

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Garbage is how many bytes of garbage a server may accumulate, besides as much as its live heap.
const Garbage = 32 << 20

// minKept is the smallest live heap that the runtime assumes, in bytes. Its minimum heap goal is minKept times the
// percentage.
const minKept = 4 << 20

// collectLater makes the garbage collector of this process start [Garbage] bytes later than it would. Otherwise
// requests of kilobytes, in a program with a live heap of a few megabytes, would start it every thousand requests. The
// runtime uses a percentage of the live heap, so collectLater sets the percentage again after each collection. It
// honors GOGC, including "off".
var collectLater = sync.OnceFunc(func() {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	if percent > 0 {
		setPercent(percent)
	}
})

// setPercent sets the collector's percentage so that it corresponds to percent of the live heap and of [Garbage], now
// and after each collection.
func setPercent(percent int) {
	kept := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(kept)
	sum := uint64(0)
	for _, k := range kept {
		sum += k.Value.Uint64()
	}
	debug.SetGCPercent(percentOf(percent, sum))
	runtime.AddCleanup(new([32]byte), setPercent, percent) // runs after the next collection
}

// percentOf returns the percentage of kept bytes that equals percent of kept and of [Garbage] together.
func percentOf(percent int, kept uint64) int {
	return int(math.Ceil(float64(percent) * (1 + Garbage/float64(max(kept, minKept)))))
}
