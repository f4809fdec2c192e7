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
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrClaimed
		}
		return nil, &os.PathError{Op: "lock", Path: folder, Err: err}
	}
	return f.Close, nil
}
