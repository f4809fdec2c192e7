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

// A slot file has two slots, each in its own page. Writes alternate between them, so a crash can damage only the slot
// that is being written. A slot is, with lengths in bytes,
//
//	SHA-256 of the rest (32 bytes) ‖ generation (8) ‖ length (2) ‖ value ‖ zeros
const (
	slotPage = 4096
	slotSize = 512
	slotHead = sha256.Size + 8 + 2
)

// MaxSlotValue is the maximum length of a [SlotFile]'s value, in bytes.
const MaxSlotValue = slotSize - slotHead

// SlotFile is a file with a small value, such as a rollback mark. Write replaces the value in place, with one sync.
// Only one process at a time can open the file. SlotFile is not safe for concurrent use.
type SlotFile struct {
	f          *os.File
	release    func() error
	generation uint64
	value      []byte
}

// OpenSlotFile opens FILE.mark beside a file, or creates it without a value. If FILE is a link, FILE.mark is beside its
// target. If another process has FILE.mark open, it returns [ErrClaimed].
func OpenSlotFile(file string) (*SlotFile, error) {
	path, err := slotPath(file)
	if err != nil {
		return nil, err
	}
	release, err := ClaimFile(path)
	if err != nil {
		return nil, err
	}
	m := &SlotFile{release: release}
	err = step(Step{Op: OpCreate, Path: path}, func() (err error) {
		m.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	if m.generation, m.value, err = readSlots(m.f); err == nil && m.value == nil {
		err = syncFolder(path) // the file may be new
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// ReadSlotFile returns the value of FILE.mark beside a file; nil if it has none. It changes nothing and works while
// another process has FILE.mark open.
func ReadSlotFile(file string) ([]byte, error) {
	path, err := slotPath(file)
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
	_, value, err := readSlots(f)
	return value, err
}

func slotPath(file string) (string, error) {
	file, err := follow(file)
	return file + ".mark", err
}

// readSlots returns the newest undamaged value and its generation; nil if there is none.
func readSlots(f *os.File) (generation uint64, value []byte, err error) {
	for slot := range int64(2) {
		raw := make([]byte, slotSize)
		if _, err := f.ReadAt(raw, slot*slotPage); err != nil && !errors.Is(err, io.EOF) {
			return 0, nil, err
		}
		if g, v, ok := parseSlot(raw); ok && g > generation {
			generation, value = g, v
		}
	}
	return generation, value, nil
}

// digest returns the SHA-256 of the rest of a slot.
func digest(p []byte) []byte {
	h := sha256.New()
	h.Write(p)
	return h.Sum(nil)
}

// parseSlot reads a slot and reports whether it is undamaged.
func parseSlot(raw []byte) (generation uint64, value []byte, ok bool) {
	hash := digest(raw[sha256.Size:])
	length := int(binary.BigEndian.Uint16(raw[slotHead-2:]))
	if !bytes.Equal(hash, raw[:sha256.Size]) || length > MaxSlotValue {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(raw[sha256.Size:]), raw[slotHead : slotHead+length], true
}

// Value returns the last value written; nil if there is none that is undamaged. The caller must not modify it.
func (m *SlotFile) Value() []byte { return m.value }

// Write replaces the value, durably. After an error the file holds either the old or the new value, and the caller may
// try again.
func (m *SlotFile) Write(value []byte) error {
	if len(value) > MaxSlotValue {
		return fmt.Errorf("couldn't write a slot of %d bytes: want at most %d", len(value), MaxSlotValue)
	}
	next := m.generation + 1
	raw := make([]byte, slotSize)
	binary.BigEndian.PutUint64(raw[sha256.Size:], next)
	binary.BigEndian.PutUint16(raw[slotHead-2:], uint16(len(value)))
	copy(raw[slotHead:], value)
	copy(raw, digest(raw[sha256.Size:]))
	at := int64(next%2) * slotPage
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
	m.generation, m.value = next, raw[slotHead:slotHead+len(value)]
	return nil
}

// Close closes the file, so that another process may open it.
func (m *SlotFile) Close() error { return errors.Join(m.f.Close(), m.release()) }

// syncFolder syncs the folder that holds path, which makes the names in it durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return step(Step{Op: OpSyncFolder, Path: path}, dir.Sync)
}
