package quickstart

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy copies a party's folder, so that another process can run the party. Unlike [os.CopyFS], it keeps the keys
// unreadable for other users.
func Copy(to, from string) error {
	err := os.CopyFS(to, os.DirFS(from))
	if err == nil {
		err = filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return os.Chmod(path, 0o600)
		})
	}
	if err != nil {
		return fmt.Errorf("couldn't copy %s: %w", from, err)
	}
	return nil
}
