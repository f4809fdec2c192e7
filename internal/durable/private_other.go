//go:build !unix

package durable

import "io/fs"

// exposed is false, because this system has no Unix file modes.
func exposed(fs.FileInfo) bool { return false }

func owned(fs.FileInfo) bool { return false }

// SetOwner does nothing: files have no owners here.
func SetOwner(string, fs.FileInfo) error { return nil }
