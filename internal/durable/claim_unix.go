//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// Claim reserves a folder for this caller until it calls release or the process ends. If another process, or another
// caller in this process, has claimed the folder, it returns [ErrClaimed].
func Claim(folder string) (release func() error, err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	return claim(f)
}

// ClaimFile is Claim for a file, which need not exist yet. It locks the same file beside it as [Lock], so a process
// uses either ClaimFile or Lock.
func ClaimFile(path string) (release func() error, err error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	return claim(f)
}

// claim locks an open file or folder. If it fails, it closes f.
func claim(f *os.File) (release func() error, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f.Close, nil
		case err == syscall.EINTR:
			continue
		}
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrClaimed
		}
		return nil, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
}
