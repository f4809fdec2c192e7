package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// leastFree is how many bytes [HasRoom] tries to write.
const leastFree = 1 << 20

// HasRoom returns an error unless 1 MiB can be written beside a file. It takes that much and frees it again: a user's
// quota may be used up although the disk has space.
func HasRoom(file string) error {
	path := file + ".room"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't look for room: %w", err)
	}
	defer os.Remove(path)
	defer f.Close()
	err = allocate(f, 0, leastFree)
	if Full(err) {
		return fmt.Errorf("the disk of %s is full: it has no room for %d KiB: %w", filepath.Dir(path), leastFree>>10, err)
	}
	return err
}
