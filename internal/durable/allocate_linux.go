package durable

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves disk space to extend a file by size bytes. at is the end of the file.
func allocate(f *os.File, at, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, at, size)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return fillWith(f, at, size)
		default:
			return err
		}
	}
}
