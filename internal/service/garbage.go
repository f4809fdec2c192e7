package service

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Garbage is how many bytes of garbage a server may have beside as much as it keeps.
const Garbage = 32 << 20

// minKept is the smallest heap that the runtime reckons with: its least goal is this, times the percentage.
const minKept = 4 << 20

// collectLater has the collector of this process wait for [Garbage] more garbage than it would: requests of kilobytes,
// served by a program that keeps a few megabytes, would have it run for every thousand of them. The runtime takes a
// percentage of what is kept, so that is set anew after each collection. GOGC is honored, "off" too.
var collectLater = sync.OnceFunc(func() {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	if percent > 0 {
		setPercent(percent)
	}
})

// setPercent sets the collector's percentage so that it stands for percent of what is kept and of [Garbage], now and
// after each collection.
func setPercent(percent int) {
	kept := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(kept)
	sum := uint64(0)
	for _, k := range kept {
		sum += k.Value.Uint64()
	}
	debug.SetGCPercent(percentOf(percent, sum))
	runtime.AddCleanup(new([32]byte), setPercent, percent) // the next collection finds it unused
}

// percentOf returns the percentage of some kept bytes that is percent of them and of [Garbage].
func percentOf(percent int, kept uint64) int {
	return int(math.Ceil(float64(percent) * (1 + Garbage/float64(max(kept, minKept)))))
}
