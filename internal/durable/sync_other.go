//go:build !linux

package durable

import "os"

// syncData waits until data written to a file is on disk.
func syncData(f *os.File) error { return f.Sync() }
