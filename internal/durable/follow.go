package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// follow returns the file that path names after following all links. The file need not exist.
func follow(path string) (string, error) {
	for range 40 { // Linux's limit
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to // not cleaned: a folder in it may also be a link
		}
		path = to
	}
	return "", &os.PathError{Op: "follow", Path: path, Err: errors.New("too many links")}
}
