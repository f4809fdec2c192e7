package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// DistributionOf exports distribution for tests.
func DistributionOf(t *task.Task, agg protocols.Aggregate) *Distribution {
	counts := Counts{Users: agg.Reports()}
	return distribution(t, Answer{Estimate: agg.Total()}, agg, counts.loss(), 0)
}

// AnswerOf exports answer for tests.
func AnswerOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate) Answer {
	return answer(t, m, agg, Counts{Users: agg.Reports()}, false, 0)
}

// PackCounters and UnpackCounters export what writes and reads aggregates for tests.
func PackCounters(a protocols.Aggregate) []byte             { return packCounters(a) }
func UnpackCounters(a protocols.Aggregate, in []byte) error { return unpackCounters(a, in) }

// Fresh returns a verifier of the same task that knows nothing yet.
func (v *Verifier) Fresh() *Verifier {
	fresh := NewChecker(v.open)
	fresh.keys, fresh.mechanism = v.keys, v.mechanism
	return fresh
}

// Synthetic returns the record of a batch of slots that need not be sealed: for each, tag and message.
func (v *Verifier) Synthetic(batch *onion.Batch, tags [][onion.TagSize]byte, messages []task.Message) (*Record, error) {
	chain, err := Check(v.open, batch)
	if err != nil {
		return nil, err
	}
	last := chain[len(chain)-1]
	r, err := newRecord(v.open, batch.Signed(), last.Epoch, last.Seq, 1)
	opened := make([]slot, len(tags))
	for i := range opened {
		opened[i] = slot{tag: tags[i], message: messages[i]}
	}
	r.fill(v.mechanism, v.open.Slots.Lanes, opened)
	return r, err
}

// DistributionOfLoss exports distribution for tests, of an aggregate and what was lost beside it.
func DistributionOfLoss(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, c Counts) *Distribution {
	return distribution(t, answer(t, m, agg, c, false, 0), agg, c.loss(), 0)
}

// Simplex exports simplex for tests.
func Simplex(x []float64, total float64) []float64 { return simplex(x, total) }

// EpochAnswerOf exports answer and distribution for tests, of one of so many epochs.
func EpochAnswerOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, epochs uint64) (Answer,
	*Distribution) {
	c := Counts{Users: agg.Reports()}
	a := answer(t, m, agg, c, false, epochs)
	return a, distribution(t, a, agg, c.loss(), epochs)
}
