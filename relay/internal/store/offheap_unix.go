//go:build linux || darwin || freebsd || netbsd || openbsd

package store

import "syscall"

// newEntries returns n zero bytes. It takes large sizes from the system: the garbage collector would leave as much
// again unused before it collects the tables' old shards.
func newEntries(n int) []byte {
	if n >= offHeap {
		all, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err == nil {
			return all
		}
	}
	return make([]byte, n)
}

// freeEntries frees what newEntries has returned. Small slices are left to the garbage collector.
func freeEntries(all []byte) {
	if len(all) >= offHeap {
		_ = syscall.Munmap(all)
	}
}
