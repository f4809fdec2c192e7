package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Reserve keeps disk space for operations that must continue when a disk is full: files of unused bytes, which it
// deletes when the space is needed. The zero value keeps none. It is safe for concurrent use.
type Reserve struct {
	mu    sync.Mutex // guards files and their content
	files []*reserveFile
	short atomic.Pointer[error]
}

// reserveFile is one file of a reserve.
type reserveFile struct {
	folder, path string
	size         int64 // wanted size in bytes
}

// reserveSuffix is appended to a file's name to form that of its reserve.
const reserveSuffix = ".reserve"

// Keep makes [Reserve.Take] keep size bytes in file's folder. In one folder the largest size counts.
func (r *Reserve) Keep(file string, size int64) error {
	file, err := follow(file)
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return err
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.files {
		if p.folder == folder {
			p.size = max(p.size, size)
			return nil
		}
	}
	r.files = append(r.files, &reserveFile{folder, filepath.Join(folder, filepath.Base(file)+reserveSuffix), size})
	return nil
}

// leastKeyRoom is the least that [KeyRoom] returns, in bytes.
const leastKeyRoom = 1 << 20

// KeyRoom returns how many bytes to keep for key files, each of which is rewritten completely. It is four times the
// largest file, as two may be written at a time and they grow, and at least 1 MiB.
func KeyRoom(files ...string) int64 {
	room := int64(leastKeyRoom)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			room = max(room, 4*info.Size())
		}
	}
	return room
}

// Take fills the reserve up as far as there is space. It returns the error of [Reserve.Short], or that of a disk that
// cannot be written to.
func (r *Reserve) Take() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var short error
	for _, p := range r.files {
		short = errors.Join(short, p.take())
	}
	r.short.Store(&short)
	return short
}

// Short returns an error while the reserve, as Take or WithReserve left it, is incomplete: a disk is full.
func (r *Reserve) Short() error {
	if short := r.short.Load(); short != nil {
		return *short
	}
	return nil
}

// HasRoom returns the error of Short, or an error if a disk is full apart from the reserve.
func (r *Reserve) HasRoom() error {
	if short := r.Short(); short != nil { // WithReserve may hold the lock for long
		return short
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.files {
		if err := HasRoom(strings.TrimSuffix(p.path, reserveSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// WithReserve runs do, which must succeed even if a disk is full. If do fails and full says that the disk was full,
// WithReserve deletes the reserve and runs do again. The reserve is then short until Take; less important work waits
// for that.
func (r *Reserve) WithReserve(full func(error) bool, do func() error) error {
	err := do()
	if err == nil || !full(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 {
		return err
	}
	given := errors.New("the disk is full: what is kept for erasing is in use")
	r.short.Store(&given)
	for _, p := range r.files {
		if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("couldn't give room back: %w", err)
		}
	}
	return do()
}

// Full says whether an error means that a disk, or a user's quota, is full.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// leastRoom is the smallest step, in bytes, by which take tries to grow a file on a full disk.
const leastRoom = 64 << 10

// take grows the file as far as there is space.
func (p *reserveFile) take() error {
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't keep room for erasing: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("couldn't keep room for erasing: %w", err)
	}
	kept := info.Size()
	for step := p.size - kept; kept < p.size; step = min(step, p.size-kept) {
		err := allocate(f, kept, step)
		if err == nil {
			kept += step
			continue
		}
		if left := f.Truncate(kept); left != nil || !Full(err) { // frees what the failed step took
			return fmt.Errorf("couldn't keep room for erasing: %w", errors.Join(err, left))
		}
		if step /= 2; step < leastRoom {
			return fmt.Errorf("the disk of %s is full: %d of %d KiB are kept there for erasing: %w", p.folder, kept>>10,
				p.size>>10, err)
		}
	}
	return nil
}

// fillWith writes random bytes, which no file system compresses or omits.
func fillWith(f *os.File, at, size int64) error {
	block := make([]byte, min(size, 1<<20))
	rand.Read(block)
	for end := at + size; at < end; {
		n, err := f.WriteAt(block[:min(int64(len(block)), end-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return f.Sync()
}
