package durable

import (
	"errors"
	"io/fs"
	"os"
)

// Overwrite replaces bytes inside a file, durably. After a crash during Overwrite, some of these bytes may be old and
// some new.
func Overwrite(f *os.File, data []byte, at int64) error {
	err := step(Step{Op: OpWrite, Path: f.Name(), At: at, Data: data}, func() error {
		_, err := f.WriteAt(data, at)
		return err
	})
	if err != nil {
		return err
	}
	return SyncData(f)
}

// Sync waits until a file and its name are on disk: what a killed process wrote may be in memory only. It does the same
// for path with each of suffixes appended. It skips files that do not exist.
func Sync(path string, suffixes ...string) error {
	path, err := follow(path)
	for _, suffix := range append(suffixes, "") {
		if err == nil {
			err = syncFile(path + suffix)
		}
	}
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := step(Step{Op: OpSync, Path: path}, f.Sync); err != nil {
		return err
	}
	return syncFolder(path)
}

// SyncData does the same as [Sync] for an open file whose name and size are on disk already.
func SyncData(f *os.File) error {
	return step(Step{Op: OpSync, Path: f.Name()}, func() error { return fdatasync(f) })
}
