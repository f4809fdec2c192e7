package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// DistributionOf exports distribution for tests, with the answer of an aggregate.
func DistributionOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate) *Distribution {
	counts := Counts{Users: agg.Reports()}
	return distribution(t, m, answer(t, m, agg, counts, false), agg, counts.loss())
}

// AnswerOf exports answer for tests.
func AnswerOf(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate) Answer {
	return answer(t, m, agg, Counts{Users: agg.Reports()}, false)
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
