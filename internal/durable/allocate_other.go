//go:build !linux

package durable

import "os"

// allocate reserves disk space to extend a file by size bytes. at is the end of the file.
func allocate(f *os.File, at, size int64) error { return fillWith(f, at, size) }
