//go:build !linux

package durable

// DiskSpace returns zeros, because it cannot find the sizes on this system.
func DiskSpace(string) (size, free uint64, err error) { return 0, 0, nil }

// diskOf returns the folder, because it cannot find its file system on this system.
func diskOf(folder string) (string, error) { return folder, nil }
