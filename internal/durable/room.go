package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// leastFree is how many bytes [HasRoom] tries to take.
const leastFree = 1 << 20

// HasRoom is an error unless a MiB can be written beside a file. It takes that much and gives it back, as a user may
// have no more although the disk has.
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
