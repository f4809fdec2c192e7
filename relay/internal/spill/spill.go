// Package spill permutes more slots than memory holds: uniformly within each lane, and so that the disk tells
// nothing.
//
// Every slot goes to one of its lane's buckets, drawn independently and uniformly. A bucket that memory has no
// room for is written to a file in blocks. To read them back, one bucket after the other is brought into memory,
// permuted uniformly, and handed out. The order of a lane is then uniform, whatever the sizes of the buckets
// come to (docs/proofs/shuffle.md, Theorem 1): the number of buckets decides about memory only.
//
// The file has no name any more when the first block is written, and every block is encrypted under a key that
// exists only in this process's memory. What a disk, or a snapshot of it, keeps of the file is random to
// everyone as soon as the process or the shuffle ends. Who sees the file meanwhile sees blocks whose order and
// sizes depend on the draws of buckets alone, not on what a slot holds.
package spill

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/randomizer"
)

// Memory is how many bytes of slots a [Shuffle] holds before it writes to the disk. What it holds when it reads them
// back is a bucket: half of that on average, and more where more slots came than were expected.
const Memory = 64 << 20

// Shuffle permutes slots of one size, lane by lane. It is used by one goroutine at a time.
type Shuffle struct {
	folder string
	size   int // bytes of a slot
	memory int // bytes that the buckets may hold together
	src    *randomizer.Source

	lanes [][]bucket // of each lane
	held  int        // bytes in memory

	file *os.File // nil until the first block is written
	end  int64
	seal *secret.AESGCM
	used uint64 // blocks that were sealed
}

// bucket holds slots, the last ones in memory.
type bucket struct {
	blocks []block
	slots  []byte
}

// block is a run of slots in the file.
type block struct {
	at    int64
	size  int // of the ciphertext
	nonce uint64
}

// New returns a shuffle of slots of a size in bytes, above 0. expect says how many slots each lane will have, about:
// it decides into how many buckets a lane is divided. folder is where the file goes if there is need of one; memory
// is [Memory], or less in tests.
func New(folder string, size int, expect []uint64, memory int) (*Shuffle, error) {
	key := make([]byte, 32)
	rand.Read(key)
	seal, err := secret.NewAESGCM(key)
	if err != nil {
		return nil, err
	}
	s := &Shuffle{folder: folder, size: size, memory: memory, src: randomizer.NewSource(), seal: seal}
	for _, n := range expect {
		buckets := n*uint64(size)*2/uint64(memory) + 1 // of half the memory, on average
		s.lanes = append(s.lanes, make([]bucket, buckets))
	}
	return s, nil
}

// Add takes a slot of a lane. It keeps a copy.
func (s *Shuffle) Add(lane int, slot []byte) error {
	if len(slot) != s.size {
		return fmt.Errorf("couldn't shuffle a slot of %d bytes among those of %d", len(slot), s.size)
	}
	buckets := s.lanes[lane]
	b := &buckets[s.src.Below(uint64(len(buckets)))]
	b.slots = append(b.slots, slot...)
	if s.held += s.size; s.held <= s.memory {
		return nil
	}
	return s.spill()
}

// spill writes to the file what the buckets hold.
func (s *Shuffle) spill() error {
	if err := s.open(); err != nil {
		return err
	}
	for _, lane := range s.lanes {
		for i := range lane {
			if err := s.write(&lane[i]); err != nil {
				return fmt.Errorf("couldn't write to the file of a shuffle: %w", err)
			}
		}
	}
	s.held = 0
	return nil
}

// open makes the file, and takes its name away.
func (s *Shuffle) open() (err error) {
	if s.file != nil {
		return nil
	}
	if s.file, err = os.CreateTemp(s.folder, ".shuffle-*"); err != nil {
		return fmt.Errorf("couldn't make the file of a shuffle: %w", err)
	}
	if err := os.Remove(s.file.Name()); err != nil {
		return fmt.Errorf("couldn't hide the file of a shuffle: %w", err)
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

// nonce returns that of a block: each number is used once under the key.
func nonce(n uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), n)
}

// Each calls do with all slots, lane after lane, each lane in a uniform order. A slot is do's until it returns. The
// shuffle has no slots afterwards.
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

// makeRoom gives back the memory of buckets that are in the file, where they are read back from it: what is not there
// yet goes there.
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

// load returns the slots of a bucket in a uniform order.
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
			return nil, fmt.Errorf("couldn't read the file of a shuffle: %w", err)
		}
		if all, err = s.seal.Open(all, nonce(at.nonce), sealed, nil); err != nil {
			return nil, errors.New("couldn't read the file of a shuffle: it was changed")
		}
	}
	out := make([][]byte, 0, len(all)/s.size)
	for ; len(all) > 0; all = all[s.size:] {
		out = append(out, all[:s.size:s.size])
	}
	randomizer.Shuffle(s.src, out)
	return out, nil
}

// Spilled says how many bytes were written to the file.
func (s *Shuffle) Spilled() int64 { return s.end }

// Close gives back memory and disk.
func (s *Shuffle) Close() error {
	s.lanes = nil
	s.seal.Clear()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
