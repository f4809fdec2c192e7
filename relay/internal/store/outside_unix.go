//go:build linux || darwin || freebsd || netbsd || openbsd

package store

import "syscall"

// newEntries returns n bytes of zeros: many of them from the system, as the garbage collector would let as much again
// lie unused before it collects what tables have grown out of.
func newEntries(n int) []byte {
	if n >= outside {
		all, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err == nil {
			return all
		}
	}
	return make([]byte, n)
}

// freeEntries gives back what newEntries has returned. What is not the system's it does not know.
func freeEntries(all []byte) {
	if len(all) >= outside {
		_ = syscall.Munmap(all)
	}
}
