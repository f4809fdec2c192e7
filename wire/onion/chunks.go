package onion

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// ChunkSlots is the number of slots of one lane that are hashed and sent together; the last chunk of a lane may have
// fewer. A batch between hops is msgpack
//
//	[manifest, signature, hashes, [chunk …]]
//
// where a chunk is the concatenation of its slots, lane after lane, and hashes holds the SHA-256 of all chunks in
// order. All slots of a hop have one size, so a chunk parses in one way only. The hashes come first: a reader checks
// the signature before the first slot, and each chunk as it arrives.
const ChunkSlots = 1024

// hashChunks returns what a manifest signs about its ciphertexts. It is the SHA-256 of ChunkSlots, of the number of
// slots of each lane (8 bytes each), and of the hashes of all chunks.
func hashChunks(counts []uint64, hashes []byte) []byte {
	head := binary.BigEndian.AppendUint64(nil, ChunkSlots)
	for _, n := range counts {
		head = binary.BigEndian.AppendUint64(head, n)
	}
	sum := sha256.Sum256(append(head, hashes...))
	return sum[:]
}

// hashLanes is [hashChunks] for a batch in memory.
func hashLanes(lanes Lanes) []byte {
	counts := make([]uint64, len(lanes))
	for lane, slots := range lanes {
		counts[lane] = uint64(len(slots))
	}
	return hashChunks(counts, lanes.hashes())
}

// chunks calls f for every chunk, lane after lane.
func (l Lanes) chunks(f func(slots [][]byte)) {
	for _, slots := range l {
		for ; len(slots) > ChunkSlots; slots = slots[ChunkSlots:] {
			f(slots[:ChunkSlots])
		}
		if len(slots) > 0 {
			f(slots)
		}
	}
}

func (l Lanes) hashes() []byte {
	hashes := []byte{}
	l.chunks(func(slots [][]byte) {
		h := sha256.New()
		for _, slot := range slots {
			h.Write(slot)
		}
		hashes = h.Sum(hashes)
	})
	return hashes
}

// Write writes the batch in the form that hops exchange, chunk by chunk.
func (b *Batch) Write(out io.Writer) error {
	hashes := b.Ciphertexts.hashes()
	w := codec.NewWriter(out)
	writeHead(w, b.Signed(), hashes)
	b.Ciphertexts.chunks(func(slots [][]byte) { w.Bytes(bytes.Join(slots, nil)) })
	return w.Err
}

// Bytes returns the batch in the form that hops exchange.
func (b *Batch) Bytes() ([]byte, error) {
	var out bytes.Buffer
	err := b.Write(&out)
	return out.Bytes(), err
}

// BatchReader reads a batch as it arrives: first the signed manifest and the hashes of all chunks, then each chunk,
// which it checks against its hash. A sender cannot make it use unlimited memory. Before the signature is checked, it
// allocates at most the longest manifest of the task. After that, it allocates the hashes of at most as many chunks as
// a batch of the task may have, and one chunk of slots of the task's size.
type BatchReader struct {
	source   *source
	in       *codec.Reader
	signed   SignedManifest
	manifest Manifest // its counts say how many slots to read
	size     int      // of a slot, in bytes; 0 if not known yet
	begun    bool     // the hashes have been read
	hashes   []byte   // of the chunks that are still to be read
	lane     int      // of the next chunk
	left     uint64   // slots of this lane that are still to be read
}

// source keeps the error with which its input ended. If parsing fails and source has no error, the bytes themselves are
// wrong.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	n, err = s.in.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// NewBatchReader reads a batch up to its signature. It refuses a manifest of more than most bytes: see [MaxManifest].
// It checks nothing else: see [BatchReader.Check].
func NewBatchReader(in io.Reader, most int64) (*BatchReader, error) {
	r := &BatchReader{source: &source{in: in}, lane: -1}
	r.in = codec.NewReader(r.source)
	n, err := r.in.Array()
	if err == nil && n != 4 {
		err = fmt.Errorf("couldn't decode a batch: an array of %d, want 4", n)
	}
	if err == nil {
		r.signed.Manifest, err = r.in.Bytes(most)
	}
	if err == nil {
		r.signed.Signature, err = r.in.Bytes(ed25519.SignatureSize)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// chunks returns the number of chunks that the manifest's counts require, at most 2³² - 1.
func (m *Manifest) chunks() (n uint64) {
	for _, lane := range m.Lanes {
		n = min(n+chunksOf(lane.Out), math.MaxUint32)
	}
	return n
}

// chunksOf returns how many chunks this many slots of one lane take.
func chunksOf(slots uint64) uint64 { return slots/ChunkSlots + min(slots%ChunkSlots, 1) }

// Signed returns the batch's manifest and signature.
func (r *BatchReader) Signed() *SignedManifest { return &r.signed }

// Check checks the manifest and the manifests of earlier hops, as [Batch.Check] does. The hashes and chunks follow in
// the input; [BatchReader.Hashes] and [BatchReader.Next] read and check them.
func (r *BatchReader) Check(t *task.Task, c Context, seq uint64) ([]Manifest, error) {
	chain, err := checkChain(t, c, seq, &r.signed)
	if err != nil {
		return nil, err
	}
	layout, err := NewLayout(t)
	if err != nil {
		return nil, err
	}
	r.manifest, r.size = chain[len(chain)-1], layout.SlotSize(c.Hop+1)
	return chain, nil
}

// Hashes reads the hashes of all chunks and checks them against the signed manifest. It returns [ErrCiphertexts] if
// they do not match, or an error of the input. [BatchReader.Next] calls it if the caller has not.
func (r *BatchReader) Hashes() (err error) {
	chunks := r.manifest.chunks()
	if r.hashes, err = r.in.Bytes(int64(chunks * sha256.Size)); err != nil {
		return r.fault(err)
	}
	n, err := r.in.Array()
	if err != nil {
		return r.fault(err)
	}
	if n != chunks || uint64(len(r.hashes)) != chunks*sha256.Size {
		return ErrCiphertexts
	}
	counts := make([]uint64, len(r.manifest.Lanes))
	for lane, n := range r.manifest.Lanes {
		counts[lane] = n.Out
	}
	if !bytes.Equal(hashChunks(counts, r.hashes), r.manifest.Ciphertexts) {
		return ErrCiphertexts
	}
	r.begun = true
	return nil
}

// fault returns an error of the input unchanged. Any other error it marks as [ErrCiphertexts].
func (r *BatchReader) fault(err error) error {
	if r.source.err != nil {
		return err
	}
	return &fault{err, ErrCiphertexts}
}

// ErrSlotSize is the error for signed slots that do not have the task's size.
var ErrSlotSize = errors.New("the slots' size is not the task's")

// Next returns the lane and slots of the next chunk, and [io.EOF] after the last. It returns [ErrCiphertexts] for a
// chunk that does not match its hash, and [ErrSlotSize] for signed slots of a wrong size. Other errors are those of
// Hashes and of the input.
func (r *BatchReader) Next() (lane int, slots [][]byte, err error) {
	if !r.begun {
		if err := r.Hashes(); err != nil {
			return 0, nil, err
		}
	}
	for r.left == 0 {
		if r.lane++; r.lane >= len(r.manifest.Lanes) {
			if err := r.in.End(); err != nil {
				return 0, nil, err
			}
			return 0, nil, io.EOF
		}
		r.left = r.manifest.Lanes[r.lane].Out
	}
	n := min(r.left, ChunkSlots)
	r.left -= n
	slots, err = r.chunk(int(n))
	return r.lane, slots, err
}

// chunk reads the next chunk, of n ≥ 1 slots. If its length is wrong, chunk hashes the bytes as they arrive and does
// not keep them. The hash tells whether the relay signed them, and so whether the relay is at fault.
func (r *BatchReader) chunk(n int) ([][]byte, error) {
	length, err := r.in.Length()
	if err != nil {
		return nil, r.fault(err)
	}
	h := sha256.New()
	var chunk bytes.Buffer
	wrong := r.size > 0 && length != uint64(n)*uint64(r.size)
	if wrong {
		_, err = io.CopyN(h, r.source, int64(length))
	} else {
		chunk.Grow(int(min(length, 64<<10)))
		_, err = io.CopyN(&chunk, r.source, int64(length))
		h.Write(chunk.Bytes())
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't decode bytes: %w", err)
	}
	if !bytes.HasPrefix(r.hashes, h.Sum(nil)) {
		return nil, ErrCiphertexts
	}
	r.hashes = r.hashes[sha256.Size:]
	if wrong {
		return nil, ErrSlotSize
	}
	return cut(chunk.Bytes(), n)
}

func cut(chunk []byte, n int) (slots [][]byte, err error) {
	size := len(chunk) / n
	if size == 0 || len(chunk) != size*n {
		return nil, ErrSlotSize
	}
	for ; n > 0; n-- {
		slots = append(slots, chunk[:size:size])
		chunk = chunk[size:]
	}
	return slots, nil
}

// Rest reads all remaining chunks into memory.
func (r *BatchReader) Rest() (*Batch, error) {
	b := &Batch{r.signed.Manifest, r.signed.Signature, make(Lanes, len(r.manifest.Lanes))}
	for lane := range b.Ciphertexts {
		b.Ciphertexts[lane] = [][]byte{}
	}
	err := r.Each(func(lane int, slots [][]byte) error {
		b.Ciphertexts[lane] = append(b.Ciphertexts[lane], slots...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Each calls do with the lane and slots of every remaining chunk.
func (r *BatchReader) Each(do func(lane int, slots [][]byte) error) error {
	for {
		lane, slots, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("couldn't read a batch: %w", err)
		}
		if err := do(lane, slots); err != nil {
			return err
		}
	}
}

// ParseBatch parses a batch in the form that hops exchange. It checks only the hashes of the chunks; see [Batch.Check].
func ParseBatch(in []byte) (*Batch, error) {
	r, err := NewBatchReader(bytes.NewReader(in), int64(len(in)))
	if err != nil {
		return nil, err
	}
	if err = codec.Unmarshal(r.signed.Manifest, &r.manifest); err == nil {
		err = r.Hashes()
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't decode a batch: %w", err)
	}
	return r.Rest()
}
