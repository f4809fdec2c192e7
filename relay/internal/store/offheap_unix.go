//go:build linux || darwin || freebsd || netbsd || openbsd

package store

import "syscall"

// newEntries returns n zero bytes. It maps large sizes directly from the operating system. On Go's heap, the old slices
// of a growing table would occupy as much memory again until the next garbage collection.
func newEntries(n int) []byte {
	if n >= offHeap {
		all, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err == nil {
			return all
		}
	}
	return make([]byte, n)
}

// freeEntries frees what newEntries returned. The garbage collector frees small slices.
func freeEntries(all []byte) {
	if len(all) >= offHeap {
		_ = syscall.Munmap(all)
	}
}
