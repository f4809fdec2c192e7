package protocols

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// EpochsEpsilon returns an upper bound of the ε that a number of a task's epochs together cost one client, at a δ in
// (0, 1). It takes the least of three bounds, where they apply: the task's total, if it covers that many epochs and its
// δ is at most this δ; the sum of the epochs' claims, if their δ add up to at most this δ; the composed laws of the
// epochs. epochs may exceed the task's own number, because a stream continues in further tasks. The caller must have
// checked the task's claim. The composition is that of [CheckTotal].
func EpochsEpsilon(t *task.Task, law func() (*compose.Law, error), epochs uint64, delta float64) (float64, error) {
	total, added := t.Claim.Total, AddedClaims(t.Claim, epochs)
	best := math.Inf(1)
	if added.Delta <= delta {
		best = added.Epsilon
	}
	if !total.IsZero() && epochs <= t.Epochs.Count && total.Delta.Value() <= delta {
		best = min(best, total.Epsilon.Value())
		if epochs == t.Epochs.Count { // The noise was calibrated for this total: no need to compose.
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
			"a larger delta: at this one, the epochs' privacy loss may be unbounded")
	}
	return best, nil
}
