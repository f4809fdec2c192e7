package durable

import "syscall"

// DiskSpace returns the size in bytes of the file system that holds a folder, and how many bytes are free to this user.
// Both are 0 on systems other than Linux.
func DiskSpace(folder string) (size, free uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}
