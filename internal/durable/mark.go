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

// A mark's file has two slots, each in its own page, which are written alternately: a crash can damage the slot that is
// being written, never the other. A slot is
//
//	SHA-256 of the rest (32 bytes) ‖ generation (8) ‖ length (2) ‖ value ‖ zeros
const (
	markPage = 4096
	markSlot = 512
	markHead = sha256.Size + 8 + 2
)

// MaxMark is the greatest length of a [Mark]'s value, in bytes.
const MaxMark = markSlot - markHead

// Mark is a small value in a file. It is replaced often and in place, with one sync each time. One process can open it
// at a time. It is not safe for concurrent use.
type Mark struct {
	f          *os.File
	release    func() error
	generation uint64
	value      []byte
}

// OpenMark opens the mark beside a file, in FILE.mark, and creates it without a value if there is none. If FILE is a
// link the mark is beside its target. OpenMark returns [ErrClaimed] if another process has the mark open.
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

// ReadMark returns the value of the mark beside a file, nil if it has none, and changes nothing. Another process may
// have the mark open.
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

// readMark returns the newest intact value, nil if there is none.
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

// parseMark reads a slot and says whether it is intact.
func parseMark(raw []byte) (generation uint64, value []byte, ok bool) {
	hash := digest(raw[sha256.Size:])
	length := int(binary.BigEndian.Uint16(raw[markHead-2:]))
	if !bytes.Equal(hash, raw[:sha256.Size]) || length > MaxMark {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(raw[sha256.Size:]), raw[markHead : markHead+length], true
}

// Value returns the last value written, nil if there is no intact one. The caller must not change it.
func (m *Mark) Value() []byte { return m.value }

// Write replaces the value, durably. After an error the file holds the old value or the new one, and the caller may try
// again.
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

// Close closes the mark, so that another process may open it.
func (m *Mark) Close() error { return errors.Join(m.f.Close(), m.release()) }

// syncFolder makes the file names in a file's folder durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return step(Step{Op: OpSyncFolder, Path: path}, dir.Sync)
}
