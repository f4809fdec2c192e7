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

// Reserve is room that is kept on disks for what must go on when they are full: files of bytes that nobody reads, and
// that are given back then. The zero value keeps none. It is safe for concurrent use.
type Reserve struct {
	mu    sync.Mutex // guards places, and their files
	files []*reserveFile
	short atomic.Pointer[error]
}

// place is a file of a reserve.
type reserveFile struct {
	folder, path string
	size         int64 // it should have
}

// reserveSuffix is what the names of a reserve's files have more than those beside which they are.
const reserveSuffix = ".reserve"

// Keep has [Reserve.Take] keep so many bytes in the folder that a file is in. For one folder the largest number counts.
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

// leastKeyRoom is how many bytes [KeyRoom] returns at least.
const leastKeyRoom = 1 << 20

// KeyRoom returns how many bytes to keep for files of keys, each of which is written anew as a whole: four times the
// largest, as two may be written at a time, and they grow; a MiB at least.
func KeyRoom(files ...string) int64 {
	room := int64(leastKeyRoom)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			room = max(room, 4*info.Size())
		}
	}
	return room
}

// Take takes what the reserve lacks, as far as there is room. Its error is that of [Reserve.Short], or of a disk that
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

// Short is an error while the reserve, as Take or Spare left it, lacks something: a disk is full.
func (r *Reserve) Short() error {
	if short := r.short.Load(); short != nil {
		return *short
	}
	return nil
}

// HasRoom is the error of Short, or of a disk that is full beside what is kept: nobody may have met it yet.
func (r *Reserve) HasRoom() error {
	if short := r.Short(); short != nil { // Spare may be at work, for long
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

// Spare does what must go on. Where that failed because a disk was full, as full says, all that is kept is given back,
// and it is done again. The reserve is then short until Take: who does what is less needed waits for that.
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

// Full says whether an error is that of a disk without room, or of a user who has no more.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// leastRoom is below what it is not worth to ask a full disk for more, in bytes.
const leastRoom = 64 << 10

// take grows the file as far as there is room.
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
		if left := f.Truncate(kept); left != nil || !Full(err) { // what it took all the same
			return fmt.Errorf("couldn't keep room for erasing: %w", errors.Join(err, left))
		}
		if step /= 2; step < leastRoom {
			return fmt.Errorf("the disk of %s is full: %d of %d KiB are kept there for erasing: %w", p.folder, kept>>10,
				p.size>>10, err)
		}
	}
	return nil
}

// fillWith writes random bytes, which no file system compresses or leaves out.
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
