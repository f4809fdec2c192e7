package protocols

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Within returns an ε that a number of epochs of a task's law cost a client together at most, at a δ in (0, 1): of the
// task's total, if that is for as many and its δ is enough; of the sum of the epochs' claims, likewise; or of the
// composed law. There may be more epochs than the task has, in a stream. The task's claim must have been checked; the
// theorem is that of [CheckTotal].
func Within(t *task.Task, law func() (*compose.Law, error), epochs uint64, delta float64) (float64, error) {
	total, added := t.Claim.Total, Added(t.Claim, epochs)
	best := math.Inf(1)
	if added.Delta <= delta {
		best = added.Epsilon
	}
	if !total.IsZero() && epochs <= t.Epochs.Count && total.Delta.Value() <= delta {
		best = min(best, total.Epsilon.Value())
		if epochs == t.Epochs.Count { // Its noise has been chosen for that.
			return best, nil
		}
	}
	if epochs == 1 && !math.IsInf(best, 1) {
		return best, nil
	}
	one, err := law()
	if err != nil {
		return 0, err
	}
	if eps, err := compose.Epsilon([]compose.Observation{one.Observation(epochs)}, delta); err == nil && eps > 0 {
		best = min(best, eps)
	}
	if math.IsInf(best, 1) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1),
			"more, for epochs whose losses may be without bound")
	}
	return best, nil
}
