package verifier

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/doona-dp/doona/internal/secret"
)

// scratchSpace keeps blocks of bytes, of at most one size, for as long as a process lives: in memory up to a limit, and
// then in a file that tells nothing. The file has no name any more when the first block is written, and every block is
// encrypted under a key that exists only in this process's memory: what a disk keeps of it is random to everyone
// afterwards. A [slotBuffer] keeps the slots of a record in it. It is safe for concurrent use.
type scratchSpace struct {
	folder   string
	maxBlock int // bytes of a block

	mu         sync.Mutex // guards the rest
	memoryLeft int        // bytes that memory may still take
	file       *os.File   // nil until memory is full
	seal       *secret.AESGCM
	used       uint64  // blocks that were sealed
	end        int64   // of the places in the file
	peak       int64   // the largest end so far
	free       []int64 // findingsWithoutSlots whose block is gone
	closed     bool
}

// scratchBlock is a block of a [scratchSpace].
type scratchBlock struct {
	data  []byte // nil: it is in the file
	at    int64
	size  int
	nonce uint64
}

// newScratch returns a space for blocks of at most most bytes, of which memory holds so many bytes. The file is made in
// folder, the system's for temporary files where that is "", if there is need of one.
func newScratch(folder string, maxBlock, memory int) *scratchSpace {
	return &scratchSpace{folder: folder, maxBlock: maxBlock, memoryLeft: memory}
}

// Put keeps a block, which is the space's from then on.
func (s *scratchSpace) Put(data []byte) (scratchBlock, error) {
	if len(data) > s.maxBlock {
		return scratchBlock{}, fmt.Errorf("couldn't keep a block of %d bytes: at most %d", len(data), s.maxBlock)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return scratchBlock{}, errScratchClosed
	}
	if cap(data) <= s.memoryLeft {
		s.memoryLeft -= cap(data)
		return scratchBlock{data: data, size: len(data)}, nil
	}
	if err := s.open(); err != nil {
		return scratchBlock{}, err
	}
	b := scratchBlock{at: s.end, size: len(data), nonce: s.used + 1}
	if n := len(s.free); n > 0 {
		b.at = s.free[n-1]
	}
	s.used++ // also where it cannot be written: a nonce is used once
	if _, err := s.file.WriteAt(s.seal.Seal(nil, scratchNonce(b.nonce), data, nil), b.at); err != nil {
		return scratchBlock{}, fmt.Errorf("couldn't write to a scratch file: %w", err)
	}
	if n := len(s.free); n > 0 {
		s.free = s.free[:n-1]
	} else {
		s.end += s.blockBytes()
		s.peak = max(s.peak, s.end)
	}
	return b, nil
}

// blockBytes is how many bytes of the file a block has.
func (s *scratchSpace) blockBytes() int64 { return int64(s.maxBlock + s.seal.Overhead()) }

// open makes the file, and takes its name away. s.mu is held.
func (s *scratchSpace) open() error {
	if s.file != nil {
		return nil
	}
	key := make([]byte, 32)
	rand.Read(key)
	seal, err := secret.NewAESGCM(key)
	if err != nil {
		return err
	}
	s.seal = seal
	f, err := os.CreateTemp(s.folder, ".scratch-*")
	if err != nil {
		return fmt.Errorf("couldn't make a scratch file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return fmt.Errorf("couldn't hide a scratch file: %w", err)
	}
	s.file = f
	return nil
}

// scratchNonce returns that of a block: each number is used once under the key.
func scratchNonce(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), n) }

// Get returns the bytes of a block, which must not be changed. Those that come from the file are in buffer, or in a
// larger one: it returns the one to use with the next block, when these bytes are not needed any more.
func (s *scratchSpace) Get(b scratchBlock, buffer []byte) (data, next []byte, err error) {
	if b.data != nil || b.size == 0 {
		return b.data, buffer, nil
	}
	if need := b.size + s.seal.Overhead(); cap(buffer) < need {
		buffer = make([]byte, need)
	}
	sealed := buffer[:b.size+s.seal.Overhead()]
	if _, err := s.file.ReadAt(sealed, b.at); err != nil {
		return nil, nil, fmt.Errorf("couldn't read a scratch file: %w", err)
	}
	data, err = s.seal.Open(sealed[:0], scratchNonce(b.nonce), sealed, nil)
	if err != nil {
		return nil, nil, errors.New("couldn't read a scratch file: it was changed")
	}
	return data, buffer, nil
}

// Free gives the buffer of a block back.
func (s *scratchSpace) Free(b scratchBlock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.data != nil || b.size == 0 {
		s.memoryLeft += cap(b.data)
		return
	}
	if s.closed {
		return
	}
	s.free = append(s.free, b.at)
	if int64(len(s.free))*s.blockBytes() == s.end && s.file.Truncate(0) == nil { // else its places are used again
		s.free, s.end = nil, 0
	}
}

// errScratchClosed is returned where a space has been closed.
var errScratchClosed = errors.New("couldn't keep a block: the scratch space is closed")

// Close gives the buffer of all blocks back, on the disk too. There are none any more, and none is taken. Of blocks of
// the file, Get is an error from then on.
func (s *scratchSpace) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed, s.free = true, nil
	if s.file == nil {
		return nil
	}
	s.seal.Clear()
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("couldn't close a scratch file: %w", err)
	}
	return nil
}

// PeakFileBytes says how many bytes of the disk the file has had at most.
func (s *scratchSpace) PeakFileBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}
