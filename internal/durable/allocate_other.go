//go:build !linux

package durable

import "os"

// allocate reserves disk space for size bytes of a file from at, its end.
func allocate(f *os.File, at, size int64) error { return fillWith(f, at, size) }
