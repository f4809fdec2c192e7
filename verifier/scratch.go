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

// scratchSpace stores blocks of bytes while the process runs. It keeps them in memory up to a limit, and the rest in an
// encrypted file. The file is unlinked before its first block is written, and its key exists only in this process's
// memory. So afterwards nobody can decrypt what is left on the disk. A [slotBuffer] stores a record's slots here.
// scratchSpace is safe for concurrent use.
type scratchSpace struct {
	folder   string
	maxBlock int // maximum size of a block, in bytes

	mu         sync.Mutex // guards the rest
	memoryLeft int        // bytes that may still be stored in memory
	file       *os.File   // nil until the memory is full
	seal       *secret.AESGCM
	used       uint64  // number of sealed blocks; the next nonce is made from it
	end        int64   // size of the file, in bytes
	peak       int64   // largest value of end so far
	free       []int64 // offsets of freed blocks in the file
	closed     bool
}

// scratchBlock says where a [scratchSpace] stores a block.
type scratchBlock struct {
	data  []byte // nil if the block is in the file
	at    int64
	size  int
	nonce uint64
}

// newScratch returns a space for blocks of at most maxBlock bytes. It stores up to memory bytes in memory. Beyond that
// it creates a file in folder. If folder is "", it uses the system's folder for temporary files.
func newScratch(folder string, maxBlock, memory int) *scratchSpace {
	return &scratchSpace{folder: folder, maxBlock: maxBlock, memoryLeft: memory}
}

// Put stores a block. The caller must not use data afterwards.
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
	s.used++ // even if writing fails, because a nonce may be used only once
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

func (s *scratchSpace) blockBytes() int64 { return int64(s.maxBlock + s.seal.Overhead()) }

// open creates the file and unlinks it, once. The caller holds s.mu.
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

// scratchNonce returns the nonce with number n. Each number is used only once.
func scratchNonce(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), n) }

// Get returns the bytes of a block, which the caller must not change. It decrypts a block from the file into buffer, or
// into a new buffer if that is too small. next is the buffer to pass to the next call, which overwrites data.
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

// Free frees the space of a block.
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
	if int64(len(s.free))*s.blockBytes() == s.end && s.file.Truncate(0) == nil { // else the offsets are reused
		s.free, s.end = nil, 0
	}
}

var errScratchClosed = errors.New("couldn't keep a block: the scratch space is closed")

// Close frees all blocks, in memory and on disk. Afterwards Put fails, and Get fails for blocks in the file.
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

// PeakFileBytes returns the largest size that the file has had, in bytes.
func (s *scratchSpace) PeakFileBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}
