// Package spill permutes more slots than fit into memory: uniformly within each lane, and so that the disk reveals
// nothing about the order.
//
// Each slot goes to one bucket of its lane, drawn independently and uniformly. Buckets that exceed the memory are
// written to a file in blocks. To read back, spill loads one bucket at a time, permutes it uniformly and hands it out.
// The order of a lane is then uniform whatever the sizes of the buckets (docs/proofs/shuffle.md, Theorem 1): the number
// of buckets affects only the memory used.
//
// The file is unlinked before its first block is written, and every block is encrypted under a key that exists only in
// this process's memory. Once the process or the shuffle ends, what a disk or a snapshot of it keeps of the file is
// indistinguishable from random bytes. An attacker who reads the file meanwhile sees blocks whose order and sizes
// depend on the draws of buckets alone, not on the slots' content.
package spill

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/randomizer"
)

// Memory is how many bytes of slots a [Shuffle] holds before it writes to the disk. Reading back needs one bucket at a
// time: on average half of that, and more if more slots came than expected.
const Memory = 64 << 20

// Shuffle permutes slots of one size, lane by lane. It is for one goroutine at a time.
type Shuffle struct {
	folder string
	size   int // bytes per slot
	memory int // most bytes in all buckets together
	src    *randomizer.Source

	lanes [][]bucket // buckets by lane
	held  int        // bytes in memory

	file *os.File // nil until the first block is written
	end  int64
	seal *secret.AESGCM
	used uint64 // number of sealed blocks
}

// bucket holds slots: earlier ones in blocks of the file, later ones in memory.
type bucket struct {
	blocks []block
	slots  []byte
}

// block is a group of slots in the file.
type block struct {
	at    int64
	size  int // bytes of the ciphertext
	nonce uint64
}

// New returns a shuffle of slots of size bytes, above 0. expect estimates the number of slots in each lane and decides
// how many buckets the lane gets. folder is where the file is created if it is needed. memory is [Memory], or less in
// tests.
func New(folder string, size int, expect []uint64, memory int) (*Shuffle, error) {
	key := make([]byte, 32)
	rand.Read(key)
	seal, err := secret.NewAESGCM(key)
	if err != nil {
		return nil, err
	}
	s := &Shuffle{folder: folder, size: size, memory: memory, src: randomizer.NewSource(), seal: seal}
	for _, n := range expect {
		buckets := n*uint64(size)*2/uint64(memory) + 1 // each has half the memory, on average
		s.lanes = append(s.lanes, make([]bucket, buckets))
	}
	return s, nil
}

// Add adds a copy of a slot to a lane.
func (s *Shuffle) Add(lane int, slot []byte) error {
	if len(slot) != s.size {
		return fmt.Errorf("couldn't shuffle a slot of %d bytes: want %d", len(slot), s.size)
	}
	buckets := s.lanes[lane]
	b := &buckets[s.src.Below(uint64(len(buckets)))]
	b.slots = append(b.slots, slot...)
	if s.held += s.size; s.held <= s.memory {
		return nil
	}
	return s.spill()
}

// spill writes the buckets' slots to the file.
func (s *Shuffle) spill() error {
	if err := s.open(); err != nil {
		return err
	}
	for _, lane := range s.lanes {
		for i := range lane {
			if err := s.write(&lane[i]); err != nil {
				return fmt.Errorf("couldn't write the shuffle's file: %w", err)
			}
		}
	}
	s.held = 0
	return nil
}

// open creates the file and unlinks it.
func (s *Shuffle) open() (err error) {
	if s.file != nil {
		return nil
	}
	if s.file, err = os.CreateTemp(s.folder, ".shuffle-*"); err != nil {
		if in := new(fs.PathError); errors.As(err, &in) {
			err = in.Err // without the file's random name, so that the log omits repetitions
		}
		return fmt.Errorf("couldn't create the shuffle's file in %s: %w", s.folder, err)
	}
	if err := os.Remove(s.file.Name()); err != nil {
		return fmt.Errorf("couldn't unlink the shuffle's file: %w", err)
	}
	return nil
}

// write moves the slots of a bucket to the file.
func (s *Shuffle) write(b *bucket) error {
	if len(b.slots) == 0 {
		return nil
	}
	s.used++
	sealed := s.seal.Seal(nil, nonce(s.used), b.slots, nil)
	if _, err := s.file.WriteAt(sealed, s.end); err != nil {
		return err
	}
	b.blocks = append(b.blocks, block{s.end, len(sealed), s.used})
	s.end += int64(len(sealed))
	b.slots = b.slots[:0]
	return nil
}

// nonce returns the nonce of block n: each number is used once per key.
func nonce(n uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), n)
}

// Each calls do with all slots, lane after lane, each lane in a uniformly random order. do must not keep a slot. The
// shuffle is empty afterwards.
func (s *Shuffle) Each(do func(lane int, slot []byte) error) error {
	if err := s.makeRoom(); err != nil {
		return err
	}
	for lane, buckets := range s.lanes {
		for i := range buckets {
			slots, err := s.load(&buckets[i])
			if err != nil {
				return err
			}
			for _, slot := range slots {
				if err := do(lane, slot); err != nil {
					return err
				}
			}
			buckets[i] = bucket{}
		}
	}
	s.held = 0
	return nil
}

// makeRoom frees the memory of buckets once the file is in use: it first writes the rest of them to the file.
func (s *Shuffle) makeRoom() error {
	if s.file == nil {
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	for _, lane := range s.lanes {
		for i := range lane {
			lane[i].slots = nil
		}
	}
	return nil
}

// load returns the slots of a bucket in a uniformly random order.
func (s *Shuffle) load(b *bucket) (slots [][]byte, err error) {
	size := len(b.slots)
	for _, at := range b.blocks {
		size += at.size
	}
	all := append(make([]byte, 0, size), b.slots...)
	var sealed []byte
	for _, at := range b.blocks {
		sealed = slices.Grow(sealed[:0], at.size)[:at.size]
		if _, err := s.file.ReadAt(sealed, at.at); err != nil {
			return nil, fmt.Errorf("couldn't read the shuffle's file: %w", err)
		}
		if all, err = s.seal.Open(all, nonce(at.nonce), sealed, nil); err != nil {
			return nil, errors.New("couldn't read the shuffle's file: it was modified")
		}
	}
	out := make([][]byte, 0, len(all)/s.size)
	for ; len(all) > 0; all = all[s.size:] {
		out = append(out, all[:s.size:s.size])
	}
	randomizer.Shuffle(s.src, out)
	return out, nil
}

// Spilled returns how many bytes were written to the file.
func (s *Shuffle) Spilled() int64 { return s.end }

// Close frees memory and disk.
func (s *Shuffle) Close() error {
	s.lanes = nil
	s.seal.Clear()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
