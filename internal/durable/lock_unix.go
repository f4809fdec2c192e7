//go:build unix

package durable

import (
	"os"
	"syscall"
)

// Lock waits until no other process, and no other caller in this one, holds the lock of path, and
// takes it; it ends with unlock or with the process. It locks a file beside path, or beside what path
// links to, as path itself may be replaced.
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

// lockFile opens the file whose lock is that of path.
func lockFile(path string) (*os.File, error) {
	path, err := follow(path)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
}
