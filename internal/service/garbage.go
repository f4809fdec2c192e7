package service

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Garbage is how many bytes of garbage a server may accumulate, in addition to the garbage that GOGC allows.
const Garbage = 32 << 20

// mostKept is the live heap, in bytes, from which on the allowed garbage no longer grows. A relay or verifier of a
// batch of 2.5·10⁷ slots keeps 200 MB of tags. With 128 MB here the later relay took 530 MB.
const mostKept = 64 << 20

// minKept is the smallest live heap that Go's runtime assumes, in bytes. Its minimum heap goal is minKept times the
// percentage of GOGC.
const minKept = 4 << 20

// collectLater lets this process accumulate [Garbage] bytes more than usual before the garbage collector starts. With a
// live heap of a few megabytes, requests of some kilobytes each would otherwise start it every thousand requests. The
// runtime accepts only a percentage of the live heap, so collectLater sets that percentage again after each collection.
// It honors GOGC, including "off".
var collectLater = sync.OnceFunc(func() {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	if percent > 0 {
		setPercent(percent)
	}
})

// setPercent sets the collector's percentage so that it allows percent of the live heap, up to mostKept, and of
// [Garbage] together. It repeats this after each collection.
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

// percentOf converts percent of (kept + [Garbage]) bytes to a percentage of kept bytes. Above mostKept, it converts
// percent of (mostKept + [Garbage]) bytes.
func percentOf(percent int, kept uint64) int {
	kept = max(kept, minKept)
	allowed := float64(min(kept, mostKept)) + Garbage
	return int(math.Ceil(float64(percent) * allowed / float64(kept)))
}
