package relay

import "crypto/subtle"

// memory is what a store remembers about an epoch of the tags and clients in a group, which is
// nothing for most of them.
type memory struct {
	receipts map[short]short  // of the submission that brought a tag
	counts   map[short]uint64 // submissions of a client
}

// decide gives the submissions of one epoch their verdicts, in the given order, and returns the
// accepted ones. It is the same for every store, and the memory grows by what it accepts.
//
// The tag alone recognizes a repeated envelope: one key opens one ciphertext to one tag. The
// receipt tells whether it comes from the same client.
func (m *memory) decide(group []*submission, over bool) (taken []*submission) {
	for _, sub := range group {
		before, known := m.receipts[sub.tag]
		switch {
		case over:
			sub.verdict = closed
		case known && subtle.ConstantTimeCompare(before[:], sub.receipt[:]) == 1:
			sub.verdict = repeated
		case known:
			sub.verdict = replayed
		case m.counts[sub.client] >= sub.quota:
			sub.verdict = limited
		default:
			sub.verdict = accepted
			m.receipts[sub.tag] = sub.receipt
			m.counts[sub.client]++
			taken = append(taken, sub)
		}
	}
	return taken
}

// place gives accepted submissions their batches: first the one that is filling, then new ones
// from next on. It returns the batches that have grown, with their new sizes, and for each the
// submissions that go there.
func place(taken []*submission, filling openBatch, next uint64) (grown []openBatch, into [][]*submission) {
	b := filling
	var here []*submission
	flush := func() {
		if len(here) > 0 {
			grown, into, here = append(grown, b), append(into, here), nil
		}
	}
	for _, sub := range taken {
		if b.submissions == sub.size {
			flush()
			b = openBatch{filling.id, max(next, b.seq+1), 0}
		}
		b.submissions++
		here = append(here, sub)
	}
	flush()
	return grown, into
}
