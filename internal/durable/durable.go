// Package durable writes files that survive a crash whole or not at all.
package durable

import (
	"os"
	"path/filepath"
)

// WriteFile replaces path with data: a temporary file, synced, renamed over path, the folder
// synced. A crash leaves the old file or the new one.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	temp := path + ".new"
	if err := writeSynced(temp, data, mode); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func writeSynced(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
