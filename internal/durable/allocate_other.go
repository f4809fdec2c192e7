//go:build !linux

package durable

import "os"

// allocate takes bytes of the disk for a part of a file, at its end.
func allocate(f *os.File, at, size int64) error { return fillWith(f, at, size) }
