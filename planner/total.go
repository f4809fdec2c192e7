package planner

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// calibrate calibrates a task with a claim of one epoch, of all epochs together, or both. one calibrates a task for one
// epoch. If only the total is claimed, each epoch gets the largest ε that keeps the total, and half of its part of δ.
// The other half is left for composition. For randomized response, every δ on its curve gives the same result.
func calibrate(t *task.Task, one func(*task.Task) error) error {
	switch {
	case t.Claim.Total.IsZero():
		return one(t)
	case t.Claim.Epsilon.Value() > 0:
		return kept(t, one)
	}
	if t.MostCopies(t.Epochs.Count) == 1 {
		t.Claim.Epsilon, t.Claim.Delta = t.Claim.Total.Epsilon, t.Claim.Total.Delta
		return one(t)
	}
	s := split{t, one}
	found, err := s.search()
	if err != nil {
		return err
	}
	*t = *found
	return nil
}

// kept calibrates a task that claims both one epoch and a total. It returns an error if the epochs do not keep the
// total.
func kept(t *task.Task, one func(*task.Task) error) error {
	if err := one(t); err != nil {
		return err
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	return m.CheckClaim()
}

type split struct {
	draft *task.Task
	one   func(*task.Task) error // Calibrates a task for one epoch.
}

// splitTolerance is the relative amount by which ε may be below the largest possible value.
const splitTolerance = 1e-3

// search returns the task with the largest ε that keeps the total. An equal part of ε always keeps it, up to the
// rounding of laws.
func (s split) search() (*task.Task, error) {
	total, epochs := s.draft.Claim.Total, float64(s.draft.MostCopies(s.draft.Epochs.Count))
	low, high := total.Epsilon.Value()/epochs, total.Epsilon.Value()
	best, atLow, err := s.try(low)
	for range 8 {
		if err != nil || atLow <= 0 {
			break
		}
		low *= .998
		best, atLow, err = s.try(low)
	}
	if err != nil {
		return nil, err
	}
	if !(atLow <= 0) {
		return nil, invalid.Field("total-epsilon", total.Epsilon.String(), "a larger total, or fewer epochs")
	}
	atHigh := math.Inf(1)
	for high > low*(1+splitTolerance) {
		eps := between(low, high, atLow, atHigh)
		if candidate, excess, err := s.try(eps); err != nil || !(excess <= 0) {
			if high, atHigh = eps, math.Inf(1); err == nil {
				atHigh = excess
			}
		} else {
			low, atLow, best = eps, excess, candidate
		}
	}
	return best, nil
}

// between returns the next ε to try in the search for excess 0: the zero of the line through both ends. It keeps some
// distance to either end, so that a few steps decide on both sides.
func between(low, high, atLow, atHigh float64) float64 {
	width := math.Log(high / low)
	least := .9 * math.Log1p(splitTolerance)
	if math.IsInf(atHigh, 1) || !(atHigh > atLow) || width < 2*least {
		return math.Sqrt(low * high)
	}
	return low * math.Exp(min(max(width*-atLow/(atHigh-atLow), least), width-least))
}

// try calibrates the task at an ε of one epoch. The second result is its excess: the logarithm of all epochs' composed
// δ divided by the total's. It keeps the total if the excess is at most 0.
func (s split) try(eps float64) (*task.Task, float64, error) {
	t := *s.draft
	t.Params = slices.Clone(t.Params)
	total, epochs := t.Claim.Total, t.MostCopies(t.Epochs.Count)
	delta := total.Delta.Value() / float64(epochs) / 2
	t.Claim.Epsilon, t.Claim.Delta = task.NewEpsilon(format(down(eps))), task.NewDelta(format(down(delta)))
	if err := s.one(&t); err != nil {
		return nil, 0, err
	}
	m, err := registry.Open(&t)
	if err != nil {
		return nil, 0, err
	}
	law, err := m.Law()
	if err != nil {
		return nil, 0, err
	}
	derived := compose.Delta([]compose.Observation{law.Observation(epochs)}, total.Epsilon.Value(), total.Delta.Value())
	return &t, math.Log(derived / total.Delta.Value()), nil
}

// down rounds a positive number down to four digits, the precision of a claim in the search.
func down(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x))-3)
	return decimal.Near(math.Floor(x/unit*(1+1e-12))*unit, 4)
}
