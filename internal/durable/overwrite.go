package durable

import (
	"errors"
	"io/fs"
	"os"
)

// Overwrite replaces bytes inside a file, durably. A crash may leave any part of them as it was.
func Overwrite(f *os.File, data []byte, at int64) error {
	err := step(Step{Op: OpWrite, Path: f.Name(), At: at, Data: data}, func() error {
		_, err := f.WriteAt(data, at)
		return err
	})
	if err != nil {
		return err
	}
	return SettleData(f)
}

// Settle waits until a file is on disk, with its name, whoever wrote it: what a process wrote that was killed may
// still be in memory alone. So it does for the files beside it whose names have a suffix more. One that is not
// there has nothing to wait for.
func Settle(path string, suffixes ...string) error {
	path, err := follow(path)
	for _, suffix := range append(suffixes, "") {
		if err == nil {
			err = settle(path + suffix)
		}
	}
	return err
}

func settle(path string) error {
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

// SettleData is [Settle] for an open file whose name and size are on disk.
func SettleData(f *os.File) error {
	return step(Step{Op: OpSync, Path: f.Name()}, func() error { return syncData(f) })
}
