package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
)

// intake adds files to a verifier, each only once: batches and signed ends of epochs. A file that it cannot open
// becomes a finding.
type intake struct {
	v     *verifier.Verifier
	bar   *cli.Bar
	total int64           // size of all known files in bytes, for the progress bar
	taken map[string]bool // paths of added files
}

func addFiles(v *verifier.Verifier, what string, paths []string) error {
	files, err := inFolders(paths)
	if err != nil {
		return err
	}
	return newIntake(v, what).add(files)
}

func newIntake(v *verifier.Verifier, what string) *intake {
	return &intake{v: v, bar: cli.ProgressBytes(what), taken: map[string]bool{}}
}

// inFolders replaces each folder by its .batch and .end files, sorted by name.
func inFolders(paths []string) (files []string, err error) {
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, path) // a missing file becomes a finding
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("couldn't read a folder of batches: %w", err)
		}
		for _, entry := range entries {
			if ext := filepath.Ext(entry.Name()); ext == ".batch" || ext == ".end" {
				files = append(files, filepath.Join(path, entry.Name()))
			}
		}
	}
	return files, nil
}

// add adds the files that it has not added before. The progress bar covers all known files.
func (in *intake) add(files []string) error {
	files = slices.DeleteFunc(slices.Clone(files), func(path string) bool { return in.taken[path] })
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			in.total += info.Size()
		}
	}
	in.bar.SetTotal(in.total)
	for _, path := range files {
		if err := in.addFile(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (in *intake) addFile(path string) error {
	in.taken[path] = true
	f, err := os.Open(path)
	if err != nil {
		in.v.Note(finding.Unread, err.Error())
		return nil
	}
	defer f.Close()
	return in.v.AddFile(path, io.TeeReader(f, in.bar))
}

// pause is the time between two scans of the folders. A file is added once it is unchanged for this time, because
// another program may still be writing it.
const pause = time.Second

// follow adds files, and files of folders as they appear, until all epochs are complete or ctx ends.
func (in *intake) follow(ctx context.Context, paths []string) error {
	before := map[string]fs.FileInfo{}
	for {
		files, err := inFolders(paths)
		if err != nil {
			return err
		}
		now := map[string]fs.FileInfo{}
		var still []string
		for _, path := range files {
			info, err := os.Stat(path)
			if err != nil {
				continue
			}
			if now[path] = info; unchanged(before[path], info) {
				still = append(still, path)
			}
		}
		if before = now; len(still) > 0 {
			if err := in.add(still); err != nil {
				return err
			}
		}
		if in.v.Whole() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// unchanged reports whether a file's size and time are those of the previous scan. was is nil for a new file.
func unchanged(was, is fs.FileInfo) bool {
	return was != nil && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}
