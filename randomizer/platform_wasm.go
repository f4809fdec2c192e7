//go:build wasip1

package randomizer

import "unsafe"

//go:wasmimport wasi_snapshot_preview1 random_get
//go:noescape
func randomGet(p unsafe.Pointer, n uint32) uint32

// platformFill reads the host's cryptographic generator (crypto.getRandomValues in a page or a
// worker) through WASI's random_get, the one import the Go runtime needs anyway.
func platformFill() func([]byte) {
	return func(p []byte) {
		if randomGet(unsafe.Pointer(unsafe.SliceData(p)), uint32(len(p))) != 0 {
			panic("randomizer: the host has no random bytes")
		}
	}
}
