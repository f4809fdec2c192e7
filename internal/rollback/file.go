package rollback

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
)

// MarkFile is the rollback mark in a key file. Several processes may share the file. It is safe for concurrent use.
type MarkFile struct {
	path string

	mu            sync.Mutex // guards the rest; held while writing
	known         *Mark      // the mark last read or written, never modified in place; nil before the first step
	file          *os.File   // the file last read completely; open, so that no new file gets its inode number
	info          os.FileInfo
	content       *layout // content of file
	documentKnown bool    // Edit's caller knows the file's document
	synced        bool    // known is on disk
	mustReplace   bool    // a write or sync failed, so only a new file is certain to reach the disk
}

// OpenMark reads the rollback mark of a file, which may have none yet. If the process that wrote the mark was killed
// before its sync, the mark may not be on disk: see [MarkFile.Sync].
func OpenMark(path string) (*MarkFile, error) {
	f := &MarkFile{path: path}
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the rollback mark: %w", err)
	}
	_, f.known, err = SplitFile(in)
	clear(in)
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return f, nil
}

// Known returns the mark as this process last read or wrote it; nil if there is none yet. Another process may have
// changed it since. The caller must not modify it.
func (f *MarkFile) Known() *Mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// Name returns the mark's ID. If there is no mark yet, it creates one.
func (f *MarkFile) Name() (string, error) {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	if known == nil {
		if err := f.Change(func(*Mark) {}); err != nil {
			return "", err
		}
		return f.Name()
	}
	return known.ID, nil
}

// Entry returns the mark's entry of an epoch.
func (f *MarkFile) Entry(key EpochKey) Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		return Entry{}
	}
	return f.known.Entries[key]
}

// Refresh rereads the mark, which other processes may have changed.
func (f *MarkFile) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withCurrent(func() error { return nil })
}

// withCurrent locks the file, reads what other processes have written, and runs do. The caller holds f.mu.
func (f *MarkFile) withCurrent(do func() error) error {
	unlock, err := durable.Lock(f.path)
	if err != nil {
		return fmt.Errorf("couldn't lock the rollback mark: %w", err)
	}
	defer unlock()
	if err := f.read(); err != nil {
		return err
	}
	return do()
}

// Sync waits until the mark that is in the file is on disk. Before, a power failure could undo it, so the caller must
// not rely on it.
func (f *MarkFile) Sync() error {
	f.mu.Lock()
	synced := f.synced
	f.mu.Unlock()
	if synced {
		return nil
	}
	return f.Refresh()
}

// Raise merges entries into the mark, durably. If the mark has them already, it writes nothing.
func (f *MarkFile) Raise(entries map[EpochKey]Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known != nil && f.synced && !f.mustReplace && !f.known.wouldChange(entries) {
		return nil
	}
	return f.withCurrent(func() error {
		if f.known == nil {
			return f.replaceMark(&Mark{ID: NewMark().ID, Entries: maps.Clone(entries)})
		}
		next := f.known.Clone()
		if changed := next.raise(entries); f.mustReplace {
			return f.replaceMark(next)
		} else if !changed {
			return nil
		}
		return f.write(next, entries)
	})
}

// Change applies change to a copy of the mark and writes the copy, durably.
func (f *MarkFile) Change(change func(s *Mark)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withCurrent(func() error {
		next := NewMark()
		if f.known != nil {
			next = f.known.Clone()
		}
		change(next)
		return f.replaceMark(next)
	})
}

// Edit replaces the key file's own document by the result of edit, durably. If edit returns nil, the document stays.
// edit gets nil instead of a document that it has read or returned before and that no other process has replaced. So
// the owner of a large document need not read it again.
func (f *MarkFile) Edit(edit func(document []byte) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withCurrent(func() error {
		var document []byte
		if !f.documentKnown {
			in, l, err := f.parse()
			defer clear(in)
			if err != nil {
				return err
			}
			document = l.document
		}
		next, err := edit(document)
		if err != nil {
			return err
		}
		f.documentKnown = true
		if next == nil {
			return nil
		}
		defer clear(next)
		return f.replace(next, f.known)
	})
}

// Close closes the file. The next use of the mark reopens it.
func (f *MarkFile) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeFile()
}

// read reads the current file. The caller holds the file's lock. If no process has replaced the file since the last
// read, read reads only the slots. It syncs what another process wrote, because that process may have been killed
// before its sync.
func (f *MarkFile) read() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("couldn't read the rollback mark: %w", err)
	}
	if f.file != nil && (!os.SameFile(now, f.info) || now.Size() != f.info.Size() || f.content.base == nil) {
		f.closeFile()
	}
	if f.file == nil {
		return f.readWhole()
	}
	raw := make([]byte, 2*slotSize)
	if _, err := f.file.ReadAt(raw, now.Size()-int64(len(raw))); err != nil {
		return fmt.Errorf("couldn't read the rollback mark: %w", err)
	}
	slots := lines(raw)
	if slots == f.content.slots { // the usual case: no other process has written
		return nil
	}
	grown, generation := latest(slots)
	if generation != f.content.latest {
		if err := f.recordSync(durable.SyncData(f.file)); err != nil {
			return err
		}
	}
	f.content.slots, f.content.grown, f.content.latest = slots, grown, generation
	f.known = f.content.mark()
	return nil
}

// recordSync records whether a sync succeeded. After a failed sync, a later one may report success although data were
// lost.
func (f *MarkFile) recordSync(err error) error {
	if f.synced = err == nil; !f.synced {
		f.mustReplace = true
		return fmt.Errorf("couldn't sync the rollback mark: %w", err)
	}
	return nil
}

func (f *MarkFile) readWhole() error {
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("couldn't open the rollback mark: %w", err)
	}
	f.file = file
	in, content, err := f.parse()
	clear(in)
	f.file = nil
	if err == nil {
		content.document = nil // the document is cleared
		f.content = content
		f.info, err = file.Stat()
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("couldn't read %s: %w", f.path, err)
	}
	if err := f.recordSync(durable.Sync(f.path)); err != nil {
		file.Close()
		return err
	}
	f.file, f.known = file, f.content.mark()
	return nil
}

// parse reads and parses the open file. The caller clears in, which holds keys.
func (f *MarkFile) parse() (in []byte, l *layout, err error) {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	if in, err = durable.ReadAll(f.file); err == nil {
		l, err = parse(in)
	}
	return in, l, err
}

func (f *MarkFile) closeFile() {
	if f.file != nil {
		f.file.Close()
	}
	f.file, f.content, f.documentKnown = nil, nil, false
}

// write writes the entries that have changed since the last complete write, including those in by, to the older slot.
// It changes nothing else in the file.
func (f *MarkFile) write(next *Mark, by map[EpochKey]Entry) error {
	grown := maps.Clone(f.content.grown)
	if grown == nil {
		grown = map[EpochKey]Entry{}
	}
	for key := range by {
		grown[key] = next.Entries[key]
	}
	generation := f.content.latest + 1
	text := encode(line{Generation: generation}, grown)
	if len(text) > slotSize {
		return f.replaceMark(next)
	}
	slot := append(text, bytes.Repeat([]byte("\n"), slotSize-len(text))...)
	at := f.info.Size() - 2*slotSize + int64(generation%2)*slotSize
	f.mustReplace = true
	if err := durable.Overwrite(f.file, slot, at); err != nil {
		return fmt.Errorf("couldn't write the rollback mark: %w", err)
	}
	f.mustReplace = false
	f.content.slots[generation%2] = string(bytes.TrimSuffix(text, []byte("\n")))
	f.content.grown, f.content.latest, f.known = grown, generation, next
	return nil
}

// replaceMark rewrites the whole file with mark next and its current document.
func (f *MarkFile) replaceMark(next *Mark) error {
	in, l, err := f.parse()
	defer clear(in)
	if err != nil {
		return fmt.Errorf("couldn't read %s: %w", f.path, err)
	}
	return f.replace(l.document, next)
}

// replace rewrites the whole file without reading the new one. The caller holds its lock and clears the document.
func (f *MarkFile) replace(document []byte, next *Mark) error {
	documentKnown := f.documentKnown
	f.closeFile()
	content := &layout{base: next}
	out := JoinFile(document, next)
	defer clear(out)
	if err := durable.WriteFile(f.path, out, 0o600); err != nil {
		return fmt.Errorf("couldn't write the rollback mark: %w", err)
	}
	f.known, f.synced, f.mustReplace = next, true, false
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return nil // the next read opens the file
	}
	if f.info, err = file.Stat(); err != nil {
		file.Close()
		return nil
	}
	f.file, f.content, f.documentKnown = file, content, documentKnown
	return nil
}
