package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// minFree is how many bytes [CheckSpace] tries to write.
const minFree = 1 << 20

// CheckSpace returns an error unless 1 MiB can be written beside a file. It writes and deletes 1 MiB, because a user's
// quota may be used up although the disk has space.
func CheckSpace(file string) error {
	path := file + ".room"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't check the free disk space: %w", err)
	}
	defer os.Remove(path)
	defer f.Close()
	err = allocate(f, 0, minFree)
	if Full(err) {
		return fmt.Errorf("the disk of %s is full: couldn't write %d KiB: %w", filepath.Dir(path), minFree>>10, err)
	}
	return err
}
