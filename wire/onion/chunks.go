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

// BatchReader reads a batch as it comes: first what was signed and the hashes of all chunks, then one chunk after the
// other, each checked against its hash. How much memory that takes is never the sender's choice: before the signature
// is checked, it is the task's longest manifest at most; then the hashes of as many chunks as batches of the task
// have, if the manifest says so; and then one chunk of slots of the task's size.
type BatchReader struct {
	source   *source
	in       *codec.Reader
	signed   SignedManifest
	manifest Manifest // of the counts by which it is read
	size     int      // bytes of a slot; 0 where it is not known
	begun    bool     // hashes are here
	hashes   []byte   // of the chunks that are still to come
	most     uint64   // chunks of the task's batches
	lane     int      // of the next chunk
	left     uint64   // slots of this lane that are still to come
}

// source keeps the error at which a stream ended: what is wrong without one is wrong with the bytes.
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

// NewBatchReader reads a batch up to its signature. The manifest may be no longer than most bytes: see [MaxManifest].
// Nothing is checked yet: see [BatchReader.Check].
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

// chunks returns the number of chunks that the counts ask for, at most 2³² however large they are.
func (m *Manifest) chunks() (n uint64) {
	for _, lane := range m.Lanes {
		n = min(n+chunksOf(lane.Out), math.MaxUint32)
	}
	return n
}

// chunksOf returns the number of chunks of so many slots of a lane.
func chunksOf(slots uint64) uint64 { return slots/ChunkSlots + min(slots%ChunkSlots, 1) }

// Signed returns the batch's manifest and signature.
func (r *BatchReader) Signed() *SignedManifest { return &r.signed }

// Check is [Batch.Check] for the manifest and its chain. What is signed after them are the hashes and the chunks, which
// [BatchReader.Hashes] and [BatchReader.Next] read and check. It reads nothing.
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
	r.most = t.Slots.Lanes * chunksOf(MaxLane(t, c.Hop))
	return chain, nil
}

// ErrTooLarge is returned where a batch's manifest is signed for more slots than the task's batches have.
var ErrTooLarge = errors.New("more slots than a batch of this task has")

// Hashes reads the hashes of all chunks and checks them by what was signed, else [ErrCiphertexts]. Other errors are
// [ErrTooLarge], and of the stream. [BatchReader.Next] calls it where nobody has.
func (r *BatchReader) Hashes() (err error) {
	chunks := r.manifest.chunks()
	if chunks > r.most {
		return ErrTooLarge
	}
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

// fault returns an error of reading as it is where the stream ended, and else as one of the ciphertexts.
func (r *BatchReader) fault(err error) error {
	if r.source.err != nil {
		return err
	}
	return &fault{err, ErrCiphertexts}
}

// ErrSlotSize is returned where a batch's slots are signed for and have another size than the task's.
var ErrSlotSize = errors.New("slots of another size than the task's")

// Next returns the lane and slots of the next chunk, and [io.EOF] after the last. A chunk that is
// not the one that was signed is [ErrCiphertexts]; one whose slots have another size than the task's
// is [ErrSlotSize]. Other errors are those of Hashes, and of the stream.
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

// chunk reads the next chunk, of n ≥ 1 slots. Bytes that those of the task's size do not have are hashed as they come
// and not kept: whether they were signed says whose fault they are.
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
	r.most = uint64(len(in)) / sha256.Size // there is no task, and what there is is in memory
	if err = codec.Unmarshal(r.signed.Manifest, &r.manifest); err == nil {
		err = r.Hashes()
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't decode a batch: %w", err)
	}
	return r.Rest()
}
