package store

import (
	"crypto/subtle"
	"math"
)

// memory is what a store remembers about an epoch of the tags and clients in a group, which is
// nothing for most of them.
type memory struct {
	receipts map[Short]receipt // of the submission that brought a tag
	counts   map[Short]uint64  // submissions of a client
}

func newMemory() *memory { return &memory{map[Short]receipt{}, map[Short]uint64{}} }

// decide gives the submissions of one epoch their verdicts, in the given order, and returns the
// accepted ones, at most room. It is the same for every store, and the memory grows by what it accepts.
//
// The tag alone recognizes a repeated envelope: one key opens one ciphertext to one tag. The
// receipt tells whether it comes from the same client.
func (m *memory) decide(group []*Submission, over bool, room uint64) (taken []*Submission) {
	for _, sub := range group {
		before, known := m.receipts[sub.Tag]
		switch {
		case over:
			sub.Verdict = Late
		case known && subtle.ConstantTimeEq(int32(before), int32(sub.Receipt.kept())) == 1:
			sub.Verdict = Repeated
		case known:
			sub.Verdict = Replayed
		case m.counts[sub.Client] >= sub.Quota:
			sub.Verdict = Limited
		case uint64(len(taken)) >= room:
			sub.Verdict = Late
		default:
			sub.Verdict = Accepted
			m.receipts[sub.Tag] = sub.Receipt.kept()
			m.counts[sub.Client]++
			taken = append(taken, sub)
		}
	}
	return taken
}

// room returns how many more submissions fit into an epoch whose latest batch is filling, if at most batches
// are to be made of it, 0 for no bound.
func room(size, batches uint64, filling OpenBatch, next uint64) uint64 {
	if batches == 0 {
		return math.MaxUint64
	}
	left := (batches - min(batches, next)) * size
	if filling.Seq < next { // it has begun
		left += size - filling.Submissions
	}
	return left
}

// reportsOf returns how many submissions an epoch has accepted whose latest batch is filling.
func reportsOf(size uint64, filling OpenBatch, next uint64) uint64 {
	if filling.Seq < next { // it has begun
		return (next-1)*size + filling.Submissions
	}
	return next * size
}

// place gives accepted submissions their batches: first the one that is filling, then new ones
// from next on. It returns the batches that have grown, with their new sizes, and for each the
// submissions that go there.
func place(taken []*Submission, filling OpenBatch, next uint64) (grown []OpenBatch, into [][]*Submission) {
	b := filling
	var here []*Submission
	flush := func() {
		if len(here) > 0 {
			grown, into, here = append(grown, b), append(into, here), nil
		}
	}
	for _, sub := range taken {
		if b.Submissions == sub.Size {
			flush()
			b = OpenBatch{filling.Batch(max(next, b.Seq+1)), 0}
		}
		b.Submissions++
		here = append(here, sub)
	}
	flush()
	return grown, into
}
