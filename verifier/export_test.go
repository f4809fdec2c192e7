package verifier

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// AnswerOf exports answer for tests.
func AnswerOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate) Answer {
	return answer(t, m, agg, Counts{Users: agg.Reports()}, false, 0)
}

// Edges exports edges for tests.
func Edges(t *task.Task) []float64 { return edges(t) }

// PackCounters and UnpackCounters export packCounters and unpackCounters for tests.
func PackCounters(a protocols.Aggregate) []byte             { return packCounters(a) }
func UnpackCounters(a protocols.Aggregate, in []byte) error { return unpackCounters(a, in) }

// Synthetic returns the record of a batch with the given tags and messages. The batch's own slots are not opened.
func (v *Verifier) Synthetic(batch *onion.Batch, tags [][onion.TagSize]byte, messages []task.Message) (*Record, error) {
	chain, err := Check(v.open, batch)
	if err != nil {
		return nil, err
	}
	last := chain[len(chain)-1]
	r, err := newRecord(v.open, batch.Signed(), last.Epoch, last.Seq, 1)
	if err != nil {
		return nil, err
	}
	f := v.recorder.newBuilder(r)
	for i := range tags {
		if err := f.add(&slot{tag: tags[i], message: messages[i]}); err != nil {
			return nil, err
		}
	}
	return r, f.finish()
}

// Open returns the record of a batch that is in memory.
func (v *Verifier) Open(batch *onion.Batch) (*Record, error) {
	b, err := inMemory(v.open, batch)
	if err != nil {
		return nil, err
	}
	return v.OpenIncoming(b)
}

// Has exports has for tests.
func (v *Verifier) Has(epoch, seq uint64) bool { return v.has(epoch, seq) }

// DistributionOfLoss exports distribution for tests, for an aggregate and the counts of what was lost.
func DistributionOfLoss(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, c Counts) *Distribution {
	return distribution(t, m, answer(t, m, agg, c, false, 0), agg, c.loss(), 0)
}

// Simplex exports simplex for tests.
func Simplex(x []float64, total float64) []float64 { return simplex(x, total) }

// EpochAnswerOf exports answer and distribution for tests, for one epoch of a task with several.
func EpochAnswerOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, epochs uint64) (Answer,
	*Distribution) {
	c := Counts{Users: agg.Reports()}
	a := answer(t, m, agg, c, false, epochs)
	return a, distribution(t, m, a, agg, c.loss(), epochs)
}

// SlotSize returns the size of a slot in a record, in bytes.
func (r *Record) SlotSize() int { return r.slots.size }

// Changed calls change, which may change the record or the slots of its lanes, and returns the result as msgpack.
func (r *Record) Changed(t require.TestingT, change func(*Record, *[][][]byte)) []byte {
	lanes := make([][][]byte, len(r.slots.lanes))
	require.NoError(t, r.slots.pieces(func(lane int, piece []byte) error {
		lanes[lane] = append(lanes[lane], bytes.Clone(piece))
		return nil
	}))
	change(r, &lanes)
	head, err := codec.Marshal(&r.recordHead)
	require.NoError(t, err)
	var out bytes.Buffer
	w := codec.NewWriter(&out)
	w.Array(2)
	w.Bytes(head)
	w.Array(len(lanes))
	for _, pieces := range lanes {
		w.Array(len(pieces))
		for _, piece := range pieces {
			w.Bytes(piece)
		}
	}
	require.NoError(t, w.Err)
	return out.Bytes()
}

// NoMemory makes a new verifier store all slots in a file in the folder.
func (v *Verifier) NoMemory(folder string) { v.recorder.space = newScratch(folder, pieceBytes, 0) }

// PeakFileBytes returns the largest size that the file of slots has had, in bytes.
func (v *Verifier) PeakFileBytes() int64 { return v.recorder.space.PeakFileBytes() }

// SetScratchMemory sets how many bytes of slots new verifiers keep in memory. The caller restores the old value by
// undo.
func SetScratchMemory(n int) (undo func()) {
	was := scratchMemory
	scratchMemory = n
	return func() { scratchMemory = was }
}
