package durable

import (
	"fmt"
	"io"
	"os"
)

// ReadPrivate reads a file of secrets. It is an error where more people may read or write it than its
// owner; but who reads another's file, as a service does that systemd or Kubernetes gives a credential
// of root's, may do so by the file's group.
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
	return io.ReadAll(f)
}
