//go:build unix

package durable

import (
	"os"
	"syscall"
)

// Lock waits for the lock of path, which one caller in one process can hold, until it calls unlock or the process ends.
// It locks a file beside path, or beside its target if path is a link, because path itself may be replaced.
func Lock(path string) (unlock func(), err error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != syscall.EINTR {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

func lockFile(path string) (*os.File, error) {
	path, err := follow(path)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
}
