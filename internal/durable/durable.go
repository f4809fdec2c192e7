// Package durable writes files that a crash leaves either completely written or unchanged.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// ErrClaimed means that another process or caller has claimed a folder or file: see [Claim] and [ClaimFile].
var ErrClaimed = errors.New("another process uses it")

// WriteFile replaces path with data: it writes a temporary file, syncs it, renames it over path and syncs the folder. A
// crash leaves the old file or the new one. A failure leaves no temporary file, which might hold keys. If path is a
// link, WriteFile replaces the target of the link. Otherwise the target, perhaps with keys that must be destroyed,
// would remain. Concurrent writers must each hold the file's [Lock].
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

// Rename moves a file within a file system, durably: after a crash it has either its old name or its new one. If there
// is a file with the new name, Rename replaces it.
func Rename(from, to string) error {
	err := step(Step{Op: OpRename, Path: from, To: to}, func() error { return os.Rename(from, to) })
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(to), syncFolder(from))
}

// MakeFolder creates a folder and its missing parents, and syncs their names. A file that is synced inside then
// survives a crash, because its folder does.
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

// tempSuffix follows a file's name in the name of its temporary file.
const tempSuffix = ".new"

// createTemp removes any existing file and creates a new one: a crash may have left the old file, or another user may
// have created it with another mode or as a link.
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
