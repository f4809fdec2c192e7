package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A mark's file has two slots, each in a page of its own, which are written in turn: a crash can spoil
// the one being written, never the other.
//
//	SHA-256 of the rest (32 bytes) ‖ generation (8) ‖ length (2) ‖ value ‖ zeros
const (
	markPage = 4096
	markSlot = 512
	markHead = sha256.Size + 8 + 2
)

// MaxMark is the length of the longest value of a [Mark], in bytes.
const MaxMark = markSlot - markHead

// Mark is a small value in a file, which is replaced often and in place, at the cost of one sync. It is
// one process's at a time. It is not safe for concurrent use.
type Mark struct {
	f          *os.File
	release    func() error
	generation uint64
	value      []byte
}

// OpenMark opens the mark beside a file, in FILE.mark, and creates it without a value where there is none;
// beside what FILE links to, where it is a link. It is [ErrClaimed] where another process has it.
func OpenMark(file string) (*Mark, error) {
	path, err := markPath(file)
	if err != nil {
		return nil, err
	}
	release, err := ClaimFile(path)
	if err != nil {
		return nil, err
	}
	m := &Mark{release: release}
	err = step(Step{Op: OpCreate, Path: path}, func() (err error) {
		m.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	if m.generation, m.value, err = readMark(m.f); err == nil && m.value == nil {
		err = syncFolder(path) // the file may be new
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// ReadMark returns the value of the mark beside a file, nil where it has none, and changes nothing. The
// mark may be another process's.
func ReadMark(file string) ([]byte, error) {
	path, err := markPath(file)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, value, err := readMark(f)
	return value, err
}

func markPath(file string) (string, error) {
	file, err := follow(file)
	return file + ".mark", err
}

// readMark returns the newest value that is whole, nil where there is none.
func readMark(f *os.File) (generation uint64, value []byte, err error) {
	for slot := range int64(2) {
		raw := make([]byte, markSlot)
		if _, err := f.ReadAt(raw, slot*markPage); err != nil && !errors.Is(err, io.EOF) {
			return 0, nil, err
		}
		if g, v, ok := parseMark(raw); ok && g > generation {
			generation, value = g, v
		}
	}
	return generation, value, nil
}

// digest returns the SHA-256 of a slot's rest.
func digest(p []byte) []byte {
	h := sha256.New()
	h.Write(p)
	return h.Sum(nil)
}

// parseMark reads a slot, if it is whole.
func parseMark(raw []byte) (generation uint64, value []byte, ok bool) {
	hash := digest(raw[sha256.Size:])
	length := int(binary.BigEndian.Uint16(raw[markHead-2:]))
	if !bytes.Equal(hash, raw[:sha256.Size]) || length > MaxMark {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(raw[sha256.Size:]), raw[markHead : markHead+length], true
}

// Value returns what was written last, nil where nothing was, or nothing that is whole. It is not to be
// changed.
func (m *Mark) Value() []byte { return m.value }

// Write replaces the value, durably. Where it fails, the file holds the old value or the new one, and the
// value may be written again.
func (m *Mark) Write(value []byte) error {
	if len(value) > MaxMark {
		return fmt.Errorf("couldn't write a mark of %d bytes: want at most %d", len(value), MaxMark)
	}
	next := m.generation + 1
	raw := make([]byte, markSlot)
	binary.BigEndian.PutUint64(raw[sha256.Size:], next)
	binary.BigEndian.PutUint16(raw[markHead-2:], uint16(len(value)))
	copy(raw[markHead:], value)
	copy(raw, digest(raw[sha256.Size:]))
	at := int64(next%2) * markPage
	err := step(Step{Op: OpWrite, Path: m.f.Name(), At: at, Data: raw}, func() error {
		_, err := m.f.WriteAt(raw, at)
		return err
	})
	if err == nil {
		err = step(Step{Op: OpSync, Path: m.f.Name()}, m.f.Sync)
	}
	if err != nil {
		return err
	}
	m.generation, m.value = next, raw[markHead:markHead+len(value)]
	return nil
}

// Close gives the mark back.
func (m *Mark) Close() error { return errors.Join(m.f.Close(), m.release()) }

// syncFolder makes the names in a file's folder durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return step(Step{Op: OpSyncFolder, Path: path}, dir.Sync)
}
