package durable

import "syscall"

// Room returns the bytes of the file system that a folder is in, and how many of them are free to this user; 0 and 0
// on systems that do not say.
func Room(folder string) (size, free uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}
