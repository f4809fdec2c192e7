//go:build !unix

package durable

import "io/fs"

// exposed is false: this system has no such modes.
func exposed(fs.FileInfo) bool { return false }
