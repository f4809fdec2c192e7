package onion

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// ChunkSlots is the number of slots of one lane that are hashed and handed on together; the last
// chunk of a lane may have fewer. A batch between hops is msgpack
//
//	[manifest, signature, hashes, [chunk …]]
//
// where a chunk is its slots one after the other, lane after lane, and hashes are the SHA-256 of all
// chunks in order. All slots of a hop have one size, so that a chunk's bytes have one meaning. The
// hashes come first: what was signed is checked before the first slot, and each chunk as it comes.
const ChunkSlots = 1024

// hashChunks returns what a manifest signs of its ciphertexts: SHA-256 over ChunkSlots and, for each
// lane, the number of slots, 4 bytes each, and then the hashes of all chunks.
func hashChunks(counts []uint64, hashes []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, ChunkSlots)
	for _, n := range counts {
		head = binary.BigEndian.AppendUint32(head, uint32(n))
	}
	sum := sha256.Sum256(append(head, hashes...))
	return sum[:]
}

// hashLanes is hashChunks of a batch in memory.
func hashLanes(lanes Lanes) []byte {
	counts := make([]uint64, len(lanes))
	for lane, slots := range lanes {
		counts[lane] = uint64(len(slots))
	}
	return hashChunks(counts, lanes.hashes())
}

// chunks calls f for every chunk.
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

// Write writes the form between hops, a chunk at a time.
func (b *Batch) Write(out io.Writer) error {
	hashes := b.Ciphertexts.hashes()
	w := codec.NewWriter(out)
	writeHead(w, b.Signed(), hashes)
	b.Ciphertexts.chunks(func(slots [][]byte) { w.Bytes(bytes.Join(slots, nil)) })
	return w.Err
}

// Bytes returns the form between hops.
func (b *Batch) Bytes() ([]byte, error) {
	var out bytes.Buffer
	err := b.Write(&out)
	return out.Bytes(), err
}

// BatchReader reads a batch as it comes: first what was signed and the hashes of all chunks, then
// one chunk after the other, each checked against its hash.
type BatchReader struct {
	in       *codec.Reader
	most     int64 // bytes of one part
	signed   SignedManifest
	manifest Manifest
	broken   error  // why the manifest cannot be read: then nothing of the batch can
	hashes   []byte // of the chunks that are still to come
	chunks   uint64 // how many the batch says it has
	lane     int    // of the next chunk
	left     uint64 // slots of this lane that are still to come
	size     int    // bytes of a slot; 0 where it is not known
}

// NewBatchReader reads a batch up to its first chunk. No part may be longer than most bytes. Nothing
// is checked yet: see [BatchReader.Check].
func NewBatchReader(in io.Reader, most int64) (*BatchReader, error) {
	r := &BatchReader{in: codec.NewReader(in), most: most, lane: -1}
	n, err := r.in.Array()
	if err == nil && n != 4 {
		err = fmt.Errorf("couldn't decode a batch: an array of %d, want 4", n)
	}
	for _, part := range []*[]byte{&r.signed.Manifest, &r.signed.Signature, &r.hashes} {
		if err == nil {
			*part, err = r.in.Bytes(most)
		}
	}
	if err != nil {
		return nil, err
	}
	r.broken = codec.Unmarshal(r.signed.Manifest, &r.manifest)
	r.chunks, err = r.in.Array()
	return r, err
}

// chunks returns the number of chunks that the counts ask for, at most 2³² however large they are.
func (m *Manifest) chunks() (n uint64) {
	for _, lane := range m.Lanes {
		n = min(n+lane.Out/ChunkSlots+min(lane.Out%ChunkSlots, 1), math.MaxUint32)
	}
	return n
}

// Signed returns the batch's manifest and signature.
func (r *BatchReader) Signed() *SignedManifest { return &r.signed }

// Check is [Batch.Check] for all that comes before the first slot. What is signed after it are the
// chunks, which [BatchReader.Next] checks.
func (r *BatchReader) Check(t *task.Task, c Context, seq uint64) ([]Manifest, error) {
	chain, err := checkChain(t, c, seq, &r.signed)
	if err != nil {
		return nil, err
	}
	if err := r.checkHashes(); err != nil {
		return nil, fmt.Errorf("couldn't accept batch %d of hop %d: %w", seq, c.Hop, err)
	}
	layout, err := NewLayout(t)
	if err != nil {
		return nil, err
	}
	r.size = layout.SlotSize(c.Hop + 1)
	return chain, nil
}

// checkHashes checks the number of chunks and their hashes by what was signed. Counts that 4 bytes do
// not hold have more chunks than an array can.
func (r *BatchReader) checkHashes() error {
	if r.broken != nil {
		return r.broken
	}
	if uint64(len(r.hashes)) != r.chunks*sha256.Size || r.chunks != r.manifest.chunks() {
		return ErrCiphertexts
	}
	counts := make([]uint64, len(r.manifest.Lanes))
	for lane, n := range r.manifest.Lanes {
		counts[lane] = n.Out
	}
	if !bytes.Equal(hashChunks(counts, r.hashes), r.manifest.Ciphertexts) {
		return ErrCiphertexts
	}
	return nil
}

// ErrSlotSize is returned where a batch's slots are signed for and have another size than the task's.
var ErrSlotSize = errors.New("slots of another size than the task's")

// Next returns the lane and slots of the next chunk, and [io.EOF] after the last. A chunk that is
// not the one that was signed is [ErrCiphertexts]; after Check, one whose slots have another size
// than the task's is [ErrSlotSize]. Other errors are of the stream.
func (r *BatchReader) Next() (lane int, slots [][]byte, err error) {
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
	chunk, err := r.in.Bytes(r.most)
	if err != nil {
		return 0, nil, err
	}
	sum := sha256.Sum256(chunk)
	if !bytes.HasPrefix(r.hashes, sum[:]) {
		return 0, nil, ErrCiphertexts
	}
	r.hashes = r.hashes[sha256.Size:]
	slots, err = cut(chunk, int(n))
	if err == nil && r.size > 0 && len(slots[0]) != r.size {
		err = ErrSlotSize
	}
	return r.lane, slots, err
}

// cut cuts a chunk into n ≥ 1 slots.
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

// Rest reads all chunks.
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

// Each calls do with the lane and slots of every chunk that is left.
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

// ParseBatch reads the form between hops. Nothing is checked but the hashes of chunks; see [Batch.Check].
func ParseBatch(in []byte) (*Batch, error) {
	r, err := NewBatchReader(bytes.NewReader(in), int64(len(in)))
	if err != nil {
		return nil, err
	}
	if err := r.checkHashes(); err != nil {
		return nil, fmt.Errorf("couldn't decode a batch: %w", err)
	}
	return r.Rest()
}
