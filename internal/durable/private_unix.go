//go:build unix

package durable

import (
	"fmt"
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

// SetOwner gives a file the user and the group of another one.
func SetOwner(path string, like fs.FileInfo) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	now, ok := info.Sys().(*syscall.Stat_t)
	want, too := like.Sys().(*syscall.Stat_t)
	if !ok || !too || now.Uid == want.Uid && now.Gid == want.Gid {
		return nil
	}
	if err := os.Chown(path, int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("couldn't give the file the user of the old one: %w", err)
	}
	return nil
}
