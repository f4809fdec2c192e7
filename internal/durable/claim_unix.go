//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// Claim makes a folder this process's own until release or its end: [ErrClaimed] where it is another's,
// or claimed in this one already.
func Claim(folder string) (release func() error, err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	return claim(f)
}

// ClaimFile is Claim for a file, which need not be there yet. It locks a file beside it, as [Lock] does:
// of one file, a process either claims or locks.
func ClaimFile(path string) (release func() error, err error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	return claim(f)
}

// claim locks an open file or folder, or closes it.
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
