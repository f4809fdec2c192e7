package onion

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
)

// BatchWriter writes a batch that does not fit in memory. It passes chunk after chunk to put. The head of the batch
// comes before the first chunk in the finished batch, but Finish returns it last, because it contains the hashes of all
// chunks.
type BatchWriter struct {
	put    func(chunk []byte) error
	counts []uint64 // number of slots, by lane
	lane   int      // of the current chunk
	slots  int      // number of slots in the current chunk
	chunk  []byte
	hashes []byte
}

// NewBatchWriter returns a writer of a batch with this many lanes. put receives the encoded chunks in order. It must
// not keep their slices.
func NewBatchWriter(lanes int, put func(chunk []byte) error) *BatchWriter {
	return &BatchWriter{put: put, counts: make([]uint64, lanes), hashes: []byte{}}
}

// Add adds a slot to a lane. Lanes must come in ascending order, and all slots must have the same size.
func (w *BatchWriter) Add(lane int, slot []byte) error {
	if lane < w.lane || lane >= len(w.counts) {
		return fmt.Errorf("invalid batch: lane %d follows lane %d of %d", lane, w.lane, len(w.counts))
	}
	if lane > w.lane || w.slots == ChunkSlots {
		if err := w.flush(); err != nil {
			return err
		}
		w.lane = lane
	}
	w.chunk = append(w.chunk, slot...)
	w.slots++
	w.counts[lane]++
	return nil
}

func (w *BatchWriter) flush() error {
	if w.slots == 0 {
		return nil
	}
	sum := sha256.Sum256(w.chunk)
	w.hashes = append(w.hashes, sum[:]...)
	var out bytes.Buffer
	out.Grow(len(w.chunk) + 5)
	to := codec.NewWriter(&out)
	to.Bytes(w.chunk)
	w.chunk, w.slots = w.chunk[:0], 0
	if to.Err != nil {
		return to.Err
	}
	return w.put(out.Bytes())
}

// Filled reports whether any slot was added.
func (w *BatchWriter) Filled() bool { return w.slots > 0 || len(w.hashes) > 0 }

// Finish passes the last chunk to put and signs the batch. It returns the signed manifest, and the head of the batch:
// all bytes before the first chunk.
func (w *BatchWriter) Finish(key ed25519.PrivateKey, d BatchDraft) (signed *SignedManifest, head []byte, err error) {
	if err := w.flush(); err != nil {
		return nil, nil, err
	}
	counts, err := d.counts(w.counts)
	if err != nil {
		return nil, nil, err
	}
	signed, err = d.sign(key, counts, hashChunks(w.counts, w.hashes))
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	writeHead(codec.NewWriter(&out), signed, w.hashes)
	return signed, out.Bytes(), nil
}

// writeHead writes the bytes of a batch before its first chunk.
func writeHead(w *codec.Writer, signed *SignedManifest, hashes []byte) {
	w.Array(4)
	w.Bytes(signed.Manifest)
	w.Bytes(signed.Signature)
	w.Bytes(hashes)
	w.Array(len(hashes) / sha256.Size)
}
