// Package durable writes files that survive a crash whole or not at all.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// ErrClaimed is returned by [Claim] and [ClaimFile].
var ErrClaimed = errors.New("another process uses it")

// WriteFile replaces path with data: a temporary file, synced, renamed over path, the folder
// synced. A crash leaves the old file or the new one; a failure leaves no temporary file, as it may
// hold keys. Where path is a link, it is the file behind it that is replaced: were it the link, the
// old content, and keys that are to be destroyed, would stay where they were. Of several that write
// at once, each must hold the file's [Lock].
func WriteFile(path string, data []byte, mode os.FileMode) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	if f.err = write(f.f, data, 0); f.err != nil {
		f.Abort()
		return f.err
	}
	return f.Commit()
}

// Rename moves a file, durably, within a file system: a crash leaves it where it was or where it is to be.
// What is at the new place is replaced.
func Rename(from, to string) error {
	err := step(Step{Op: OpRename, Path: from, To: to}, func() error { return os.Rename(from, to) })
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(to), syncFolder(from))
}

// MakeFolder makes a folder, and those that it is in, where they are not there. Their names are durable then,
// so that what is synced inside is not lost with the folder.
func MakeFolder(path string, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MakeFolder(parent, mode); err != nil {
			return err
		}
	}
	err := step(Step{Op: OpMakeFolder, Path: path}, func() error { return os.Mkdir(path, mode) })
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncFolder(path)
}

// tempSuffix is what the names of temporary files have more.
const tempSuffix = ".new"

// createTemp makes a file anew: one that a crash left, or that someone else put there with another mode or as a link,
// is not written to.
func createTemp(path string, mode os.FileMode) (f *os.File, err error) {
	err = step(Step{Op: OpRemove, Path: path}, func() error { return os.Remove(path) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	err = step(Step{Op: OpCreate, Path: path}, func() (err error) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	return f, err
}

func write(f *os.File, data []byte, at int64) error {
	return step(Step{Op: OpWrite, Path: f.Name(), At: at, Data: data}, func() error {
		_, err := f.WriteAt(data, at)
		return err
	})
}
