package durable

import (
	"fmt"
	"os"
	"syscall"
)

// DiskSpace returns the size of the file system that holds a folder and its free space for this user, both in bytes. On
// systems other than Linux both are 0.
func DiskSpace(folder string) (size, free uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}

// diskOf returns the number of the file system that holds a folder. On systems other than Linux it returns the folder.
func diskOf(folder string) (string, error) {
	var s syscall.Stat_t
	if err := syscall.Stat(folder, &s); err != nil {
		return "", &os.PathError{Op: "stat", Path: folder, Err: err}
	}
	return fmt.Sprint(s.Dev), nil
}
