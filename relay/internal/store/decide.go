package store

import (
	"crypto/subtle"
	"math"

	"github.com/doona-dp/doona/wire/onion"
)

// memory has what the store knows about a group's tags and clients in one epoch. New ones are absent.
type memory struct {
	receipts map[Short]receipt // by tag: the receipt of the stored submission with it
	counts   map[Short]uint64  // number of stored submissions per client
}

func newMemory() *memory { return &memory{map[Short]receipt{}, map[Short]uint64{}} }

// decide sets the verdicts of one epoch's submissions, in the given order, and returns the accepted ones, at most room.
// over means that the epoch accepts no more. decide adds the accepted ones to the memory. Both engines use it.
//
// The tag alone identifies a repeated envelope, because a key opens a ciphertext to exactly one tag. The receipt tells
// whether the same client has sent it.
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

// room returns how many more submissions an epoch can take. filling is its latest batch. batches is the epoch's maximum
// number of batches, 0 for no limit.
func room(size, batches uint64, filling OpenBatch, next uint64) uint64 {
	if batches == 0 {
		return math.MaxUint64
	}
	left := (batches - min(batches, next)) * size
	if filling.Seq < next { // filling has begun
		left += size - filling.Submissions
	}
	return left
}

// reportsOf returns how many submissions an epoch has accepted, given the batch that it fills now.
func reportsOf(size uint64, filling OpenBatch, next uint64) uint64 {
	if filling.Seq < next { // filling has begun
		return (next-1)*size + filling.Submissions
	}
	return next * size
}

// assign distributes the slots of accepted submissions: first to the batch that is filling, then to new batches
// numbered from next, of size submissions each. It returns the batches that grew, with their new sizes, and the slots
// of each.
func assign(taken []onion.Lanes, size uint64, filling OpenBatch, next uint64) (grown []OpenBatch,
	into [][]onion.Lanes) {
	b := filling
	var here []onion.Lanes
	flush := func() {
		if len(here) > 0 {
			grown, into, here = append(grown, b), append(into, here), nil
		}
	}
	for _, lanes := range taken {
		if b.Submissions == size {
			flush()
			b = OpenBatch{filling.Batch(max(next, b.Seq+1)), 0}
		}
		b.Submissions++
		here = append(here, lanes)
	}
	flush()
	return grown, into
}
