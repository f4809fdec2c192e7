package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// follow returns the file that path names in the end, whether or not it is there: path itself, unless
// it is a link.
func follow(path string) (string, error) {
	for range 40 { // as the system does
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to // not cleaned: a folder of it may be a link, too
		}
		path = to
	}
	return "", &os.PathError{Op: "follow", Path: path, Err: errors.New("too many links")}
}
