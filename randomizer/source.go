package randomizer

import "encoding/binary"

// sourceBuffer is how many bytes a Source requests from its provider at once: enough for most reports. A larger
// buffer would make each client generate bytes it does not use. A smaller one would cost a relay that permutes a
// batch more calls.
const sourceBuffer = 1024

// Source is a sequence of uniform random bytes, consumed in draws of 8 bytes. It is not safe for concurrent use: give
// each goroutine its own. Do not copy it: both copies would draw the same bytes. The zero value is not usable; see
// [NewSource].
type Source struct {
	_    noCopy
	fill func([]byte) // Overwrites its argument with uniform bytes.
	buf  [sourceBuffer]byte
	next int // Bytes of buf already used; they are zeroed.
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewSource returns a Source backed by the platform. Natively it is a ChaCha20 keystream, keyed and rekeyed from the
// operating system. In WASM it is the host's cryptographic generator.
func NewSource() *Source { return NewSourceFrom(platformFill()) }

// NewSourceFrom returns a Source that takes its bytes from fill, which must overwrite its whole
// argument with uniform bytes. It exists for reproducible test vectors: a caller that passes
// anything but a cryptographic generator gives up the privacy guarantee.
func NewSourceFrom(fill func([]byte)) *Source {
	return &Source{fill: fill, next: sourceBuffer}
}

// Uint64 returns a uniform 64-bit integer: the next 8 bytes, big-endian.
func (s *Source) Uint64() uint64 {
	if s.next == sourceBuffer {
		s.fill(s.buf[:])
		s.next = 0
	}
	draw := s.buf[s.next : s.next+8]
	v := binary.BigEndian.Uint64(draw)
	clear(draw) // a used draw must not be recoverable from memory later
	s.next += 8
	return v
}

// Read fills p with uniform bytes, in whole draws: a last, partial draw drops its low bytes.
// It never fails.
func (s *Source) Read(p []byte) (int, error) {
	var draw [8]byte
	for rest := p; len(rest) > 0; {
		binary.BigEndian.PutUint64(draw[:], s.Uint64())
		rest = rest[copy(rest, draw[:]):]
	}
	return len(p), nil
}
