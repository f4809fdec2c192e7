package durable

import (
	"errors"
	"os"
)

// File writes a file of any size, which gets its name only when it is complete. See [Create].
type File struct {
	path   string
	f      *os.File
	at     int64  // bytes written to f
	buffer []byte // bytes to write to f next
	err    error  // the first error
	closed bool   // Commit or Abort was called
}

// fileBuffer is the size of one write to the file, in bytes.
const fileBuffer = 256 << 10

// Create begins to replace path, as [WriteFile] does: it writes to a temporary file, which [File.Commit] renames to
// path. The caller must call Commit or [File.Abort]; Abort after Commit does nothing.
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

// Write appends bytes. It may return the error of an earlier Write.
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

// WriteAt replaces bytes that were written earlier.
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

// Commit gives the file its name, durably. If it fails, the previous file is unchanged.
func (f *File) Commit() error {
	f.flush()
	if f.err == nil {
		f.err = step(Step{Op: OpSync, Path: f.temp()}, f.f.Sync)
	}
	f.closed, f.err = true, errors.Join(f.err, f.f.Close())
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

// Abort deletes the temporary file.
func (f *File) Abort() {
	if f.closed {
		return
	}
	f.closed = true
	_ = f.f.Close()
	f.remove()
}

func (f *File) temp() string { return f.path + tempSuffix }

func (f *File) remove() {
	_ = step(Step{Op: OpRemove, Path: f.temp()}, func() error { return os.Remove(f.temp()) })
}
