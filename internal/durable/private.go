package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// ReadPrivate reads a file of secrets. It returns an error if users other than the file's owner may read or write it.
// One exception: a process may read another user's file through its group, as a service reads root's credentials from
// systemd or Kubernetes. The result is the only copy in memory. The caller clears it.
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

// maxPrivate is the maximum size in bytes of a file that ReadAll reads.
const maxPrivate = 1 << 30

// ReadAll reads a file into one buffer, because a growing buffer would leave copies of secrets in memory.
func ReadAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxPrivate {
		return nil, fmt.Errorf("%s has %d bytes: want at most %d", f.Name(), info.Size(), maxPrivate)
	}
	in := make([]byte, info.Size()+1) // one more byte shows whether the file has grown
	n, err := io.ReadFull(f, in)
	switch {
	case err == nil:
		err = fmt.Errorf("%s grew during the read", f.Name())
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return in[:n], nil
	}
	clear(in)
	return nil, err
}

// CloseToGroup closes files of secrets, and all files in folders of secrets, to their group, to which Kubernetes opens
// all files of a volume with fsGroup. It logs each file that was open. It skips empty paths and missing files.
func CloseToGroup(log *slog.Logger, files, folders []string) error {
	files = slices.Clone(files)
	for _, root := range folders {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files = append(files, path)
			}
			return nil
		})
	}
	for _, path := range files {
		done, err := tighten(path)
		if err != nil {
			return err
		}
		if done {
			log.Warn("closed a key file to its group", "file", path,
				"do", "with Kubernetes set fsGroupChangePolicy: OnRootMismatch")
		}
	}
	return nil
}

// tighten sets the mode of a file of secrets to 0600, if this user owns it and only its group may read or write it
// besides. It reports whether it did.
func tighten(path string) (done bool, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 || !exposed(info) || !owned(info) {
		return false, nil // ReadPrivate says what is wrong
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return false, fmt.Errorf("couldn't close %s to its group: %w", path, err)
	}
	return true, nil
}
