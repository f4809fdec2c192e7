package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Reserve holds disk space for operations that must continue when a disk is full: files of random bytes, which it
// deletes when an operation needs the space. The zero value holds none. It is safe for concurrent use.
type Reserve struct {
	mu    sync.Mutex // guards files and their content
	files []*reserveFile
	short atomic.Pointer[error]
	whole atomic.Bool // see Whole
}

// reserveFile is one file of a reserve.
type reserveFile struct {
	of           string // the file for which Add was called first
	folder, path string
	size         int64 // wanted size in bytes
}

// reserveSuffix follows a file's name in the name of its reserve file.
const reserveSuffix = ".reserve"

// Add makes [Reserve.Fill] reserve size bytes in file's folder. Of several sizes for one folder, the largest counts.
func (r *Reserve) Add(file string, size int64) error {
	of := file
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
	r.whole.Store(false)
	for _, p := range r.files {
		if p.folder == folder {
			p.size = max(p.size, size)
			return nil
		}
	}
	r.files = append(r.files, &reserveFile{of, folder, filepath.Join(folder, filepath.Base(file)+reserveSuffix), size})
	return nil
}

// Remove stops reserving the space for which [Reserve.Add] was called with this path, and frees it. If Add was first
// called with another file in the folder, the space stays reserved.
func (r *Reserve) Remove(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.files, func(p *reserveFile) bool { return p.of == file })
	if at < 0 {
		return nil
	}
	path := r.files[at].path
	r.files = slices.Delete(r.files, at, at+1)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// minKeyReserve is the minimum that [KeyReserve] returns, in bytes.
const minKeyReserve = 1 << 20

// KeyReserve returns how many bytes to reserve for key files, each of which is rewritten completely. It is four times
// the largest file, because two may be written at one time and they grow, and at least 1 MiB.
func KeyReserve(files ...string) int64 {
	size := int64(minKeyReserve)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			size = max(size, 4*info.Size())
		}
	}
	return size
}

// Fill reserves as much of the wanted space as the disks have. If space is missing, it returns the error that
// [Reserve.Short] then returns.
func (r *Reserve) Fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var short error
	for _, p := range r.files {
		short = errors.Join(short, p.fill())
	}
	r.short.Store(&short)
	r.whole.Store(short == nil)
	return short
}

// Whole reports whether the last Fill reserved all space, and nothing was added or used since. Then another Fill is
// only to find a file that somebody has removed.
func (r *Reserve) Whole() bool { return r.whole.Load() }

// Short returns an error while the reserve is incomplete: the last Fill found the disk full, or WithReserve has used
// the space since.
func (r *Reserve) Short() error {
	if short := r.short.Load(); short != nil {
		return *short
	}
	return nil
}

// CheckSpace returns the error of Short, or an error if a disk has no free space beside the reserve. It writes to each
// disk once, however many folders the disk has.
func (r *Reserve) CheckSpace() error {
	if short := r.Short(); short != nil { // check first, because WithReserve may hold the lock for long
		return short
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	checked := map[string]bool{}
	for _, p := range r.files {
		disk, err := diskOf(p.folder)
		if err != nil {
			return fmt.Errorf("couldn't check the free disk space: %w", err)
		}
		if checked[disk] {
			continue
		}
		checked[disk] = true
		if err := CheckSpace(strings.TrimSuffix(p.path, reserveSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// WithReserve runs do, which must succeed even if a disk is full. If do fails and full reports that its error means a
// full disk, WithReserve deletes the reserve and runs do again. The reserve is then short until the next Fill. Less
// important work should wait until then.
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
	used := errors.New("the disk is full: the space reserved for erasing is in use: free disk space")
	r.short.Store(&used)
	r.whole.Store(false)
	for _, p := range r.files {
		if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("couldn't free the reserved space: %w", err)
		}
	}
	return do()
}

// Full reports whether an error means that a disk, or a user's quota, is full.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// minStep is the smallest amount, in bytes, by which fill tries to extend a file on a full disk.
const minStep = 64 << 10

// fill extends the reserve file to its wanted size, or as far as the disk has space.
func (p *reserveFile) fill() error {
	if info, err := os.Stat(p.path); err == nil && info.Size() >= p.size { // mostly: a relay asks each second
		return nil
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't reserve disk space: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("couldn't reserve disk space: %w", err)
	}
	reserved := info.Size()
	for step := p.size - reserved; reserved < p.size; step = min(step, p.size-reserved) {
		err := allocate(f, reserved, step)
		if err == nil {
			reserved += step
			continue
		}
		if left := f.Truncate(reserved); left != nil || !Full(err) { // frees the space of the failed attempt
			return fmt.Errorf("couldn't reserve disk space: %w", errors.Join(err, left))
		}
		if step /= 2; step < minStep {
			return fmt.Errorf("the disk of %s is full: only %d of %d KiB are reserved for erasing: %w", p.folder,
				reserved>>10, p.size>>10, err)
		}
	}
	return nil
}

// fillWith extends a file with random bytes, because file systems may compress or omit others.
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
