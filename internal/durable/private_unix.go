//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"
)

// exposed reports whether users other than those that ReadPrivate allows may read or write a file.
func exposed(info fs.FileInfo) bool {
	open := info.Mode().Perm() & 0o077
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		open &^= 0o040
	}
	return open != 0
}
