package protocols

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// EpochsEpsilon returns an upper bound of the ε that a number of a client's reports for a task together cost it, each
// in its own epoch, at a δ in (0, 1). It takes the least of three bounds, where they apply: the task's total, if it
// covers that many reports and its δ is at most this δ; the sum of the epochs' claims, if their δ add up to at most
// this δ; the composed laws of the reports. There may be more than the task allows, because a stream continues in
// further tasks. With events, the number is that of [task.Task.MostCopies]. The caller must have checked the task's
// claim. The composition is that of [CheckTotal].
func EpochsEpsilon(t *task.Task, law func() (*compose.Law, error), reports uint64, delta float64) (float64, error) {
	total, added := t.Claim.Total, AddedClaims(t.Claim, reports)
	best := math.Inf(1)
	if added.Delta <= delta {
		best = added.Epsilon
	}
	most := t.MostCopies(t.Epochs.Count)
	if !total.IsZero() && reports <= most && total.Delta.Value() <= delta {
		best = min(best, total.Epsilon.Value())
		if reports == most { // The noise was calibrated for this total: no need to compose.
			return best, nil
		}
	}
	if reports == 1 && !math.IsInf(best, 1) {
		return best, nil
	}
	one, err := law()
	if err != nil {
		return 0, err
	}
	if eps, err := compose.Epsilon([]compose.Observation{one.Observation(reports)}, delta); err == nil && eps > 0 {
		best = min(best, eps)
	}
	if math.IsInf(best, 1) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1),
			"a larger delta, such as "+decimal.Up(added.Delta, 3)+", which the epochs claim: at this one, their privacy "+
				"loss may be unbounded")
	}
	return best, nil
}
