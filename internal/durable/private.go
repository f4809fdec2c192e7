package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadPrivate reads a file of secrets. It is an error where more people may read or write it than its
// owner; but who reads another's file, as a service does that systemd or Kubernetes gives a credential
// of root's, may do so by the file's group. The caller clears what it returns, which is the only copy.
func ReadPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if exposed(info) {
		return nil, fmt.Errorf("%s is open to others than its owner: want mode 0600, have %#o: chmod 600 %s", path,
			info.Mode().Perm(), path)
	}
	return ReadAll(f)
}

// maxPrivate is the size of the largest file of secrets, in bytes.
const maxPrivate = 1 << 30

// ReadAll reads a file into one buffer: one that grew would leave copies of what it held.
func ReadAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxPrivate {
		return nil, fmt.Errorf("%s has %d bytes: want at most %d", f.Name(), info.Size(), maxPrivate)
	}
	in := make([]byte, info.Size()+1) // 1: whether it has grown
	n, err := io.ReadFull(f, in)
	switch {
	case err == nil:
		err = fmt.Errorf("%s grows while it is read", f.Name())
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return in[:n], nil
	}
	clear(in)
	return nil, err
}
