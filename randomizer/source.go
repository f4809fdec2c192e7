package randomizer

import "encoding/binary"

// sourceBuffer is how many bytes a Source requests from its generator at once: enough for most reports. A larger buffer
// would make each client generate bytes that it does not use. With a smaller buffer, a relay that permutes a batch
// would need more calls.
const sourceBuffer = 1024

// Source is a sequence of uniform random bytes, consumed in draws of 8 bytes. It is not safe for concurrent use: give
// each goroutine its own. Do not copy it: both copies would draw the same bytes. The zero value is not usable; see
// [NewSource].
type Source struct {
	_    noCopy
	fill func([]byte) // Overwrites its argument with uniform bytes.
	buf  [sourceBuffer]byte
	next int // Index of the next unused byte of buf; the used bytes before it are zero.
}

// noCopy makes `go vet` report a copy of the struct that contains it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewSource returns a Source of cryptographic randomness. Native programs use a ChaCha20 keystream whose first key is
// from the operating system. In WASM, the bytes come from the host's cryptographic generator.
func NewSource() *Source { return NewSourceFrom(platformFill()) }

// NewSourceFrom returns a Source that takes its bytes from fill. fill must overwrite its whole argument with uniform
// bytes. Use it only for reproducible test vectors: with anything but a cryptographic generator, the privacy guarantee
// is lost.
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
	clear(draw) // later, nobody must be able to recover a used draw from memory
	s.next += 8
	return v
}

// Read fills p with uniform bytes. It consumes whole draws of 8 bytes: of a last, partial draw it drops the low bytes.
// It never fails.
func (s *Source) Read(p []byte) (int, error) {
	var draw [8]byte
	for rest := p; len(rest) > 0; {
		binary.BigEndian.PutUint64(draw[:], s.Uint64())
		rest = rest[copy(rest, draw[:]):]
	}
	return len(p), nil
}
