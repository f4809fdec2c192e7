//go:build !linux

package durable

import "os"

// fdatasync waits until data written to a file is on disk.
func fdatasync(f *os.File) error { return f.Sync() }
