package durable

import (
	"errors"
	"os"
)

// File is a file of any size that is being written: it takes its name when it is whole. See [Create].
type File struct {
	path   string
	f      *os.File
	at     int64  // bytes that were written
	buffer []byte // what comes behind them
	err    error  // The first one.
	over   bool   // It was committed or aborted.
}

// fileBuffer is how many bytes are written at once.
const fileBuffer = 256 << 10

// Create begins to replace path, as [WriteFile] does: what is written goes to a temporary file, which [File.Commit]
// puts in its place. Commit ends it, or [File.Abort], which does nothing behind the other.
func Create(path string, mode os.FileMode) (*File, error) {
	path, err := follow(path)
	if err != nil {
		return nil, err
	}
	f, err := createTemp(path+tempSuffix, mode)
	if err != nil {
		return nil, err
	}
	return &File{path: path, f: f}, nil
}

// Write adds bytes. Its error may be of earlier ones.
func (f *File) Write(p []byte) (int, error) {
	if f.buffer == nil {
		f.buffer = make([]byte, 0, fileBuffer)
	}
	for rest := p; len(rest) > 0 && f.err == nil; {
		n := min(len(rest), cap(f.buffer)-len(f.buffer))
		f.buffer, rest = append(f.buffer, rest[:n]...), rest[n:]
		if len(f.buffer) == cap(f.buffer) {
			f.flush()
		}
	}
	if f.err != nil {
		return 0, f.err
	}
	return len(p), nil
}

// WriteAt replaces bytes that were written.
func (f *File) WriteAt(p []byte, at int64) (int, error) {
	f.flush()
	if f.err == nil {
		f.err = write(f.f, p, at)
	}
	if f.err != nil {
		return 0, f.err
	}
	return len(p), nil
}

func (f *File) flush() {
	if len(f.buffer) == 0 || f.err != nil {
		return
	}
	f.err = write(f.f, f.buffer, f.at)
	f.at += int64(len(f.buffer))
	f.buffer = f.buffer[:0]
}

// Commit puts the file in its place, durably. After an error there is no file but that which was there.
func (f *File) Commit() error {
	f.flush()
	if f.err == nil {
		f.err = step(Step{Op: OpSync, Path: f.temp()}, f.f.Sync)
	}
	f.over, f.err = true, errors.Join(f.err, f.f.Close())
	if f.err == nil {
		f.err = step(Step{Op: OpRename, Path: f.temp(), To: f.path},
			func() error { return os.Rename(f.temp(), f.path) })
	}
	if f.err != nil {
		f.remove()
		return f.err
	}
	return syncFolder(f.path)
}

// Abort removes what was written.
func (f *File) Abort() {
	if f.over {
		return
	}
	f.over = true
	_ = f.f.Close()
	f.remove()
}

func (f *File) temp() string { return f.path + tempSuffix }

func (f *File) remove() {
	_ = step(Step{Op: OpRemove, Path: f.temp()}, func() error { return os.Remove(f.temp()) })
}
