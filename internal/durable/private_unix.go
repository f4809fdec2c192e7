//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"
)

// exposed reports whether a file's mode lets more users read or write it than [ReadPrivate] allows.
func exposed(info fs.FileInfo) bool {
	open := info.Mode().Perm() & 0o077
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		open &^= 0o040
	}
	return open != 0
}

// owned reports whether this process's user owns a file.
func owned(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
