package vectorgrid

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Vector, task.VectorMean},
		Rule:    string(accountant.Exact),
		Costs:   []protocols.Case{{Query: task.VectorMean, Dim: 2}},
		Trials: []protocols.Case{{Query: task.Vector, Dim: 2, Users: 1000, Epsilon: 2},
			{Query: task.VectorMean, Dim: 2, Users: 1000, Epsilon: 2}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set. It keeps a
// parameter r that the task names, and otherwise chooses r. γ is the smallest that proves the claim.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	lo, hi := uint64(1), mostLevels(t.Input.Bins)
	if _, ok := t.Param("r"); ok {
		r, err := protocols.WholeParam(t, "r", 1, maxR)
		if err != nil {
			return err
		}
		lo, hi = r, r
	}
	if _, err := checkPoints(t.Input.Bins, lo); err != nil {
		return err
	}
	m, err := search(t, lo, hi)
	if err != nil {
		return err
	}
	t.Params = []task.Param{{Key: "gamma", Value: m.krr.Gamma}, protocols.Whole("r", m.r)}
	t.Slots = m.krr.Slots()
	return nil
}

// search returns the mechanism of least cost with r in lo..hi. The cost first falls and then rises in r. The search
// doubles r until the cost rises, and then narrows the range by thirds. If no γ < 1 proves the claim for an r, its cost
// is infinite; for r = lo that is an error.
func search(t *task.Task, lo, hi uint64) (*Mechanism, error) {
	first, err := candidate(t, lo)
	if err != nil {
		return nil, err
	}
	known := map[uint64]*Mechanism{lo: first}
	cost := func(r uint64) float64 {
		if _, ok := known[r]; !ok {
			known[r], _ = candidate(t, r)
		}
		if known[r] == nil {
			return math.Inf(1)
		}
		return known[r].cost()
	}
	top := lo
	for top < hi {
		next := min(2*top, hi)
		rises := cost(next) >= cost(top)
		if top = next; rises {
			break
		}
		lo = max(lo, top/4)
	}
	for top-lo > 2 {
		third := (top - lo) / 3
		if cost(lo+third) <= cost(top-third) {
			top -= third
		} else {
			lo += third
		}
	}
	best := lo
	for r := lo; r <= top; r++ {
		if cost(r) < cost(best) {
			best = r
		}
	}
	return known[best], nil
}

// candidate returns the mechanism with the given r and the smallest γ that proves the claim.
func candidate(t *task.Task, r uint64) (*Mechanism, error) {
	points, err := checkPoints(t.Input.Bins, r)
	if err != nil {
		return nil, err
	}
	krr, err := protocols.CalibrateKRR(t, points)
	if err != nil {
		return nil, err
	}
	return &Mechanism{t, t.Input.Bins, r, krr}, nil
}

// mostLevels returns the largest r for which a grid of d coordinates has at most maxPoints points; 0 if no r does.
func mostLevels(d uint64) uint64 {
	lo, hi := uint64(0), uint64(maxR+1)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; fits(d, mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func fits(d, r uint64) bool {
	_, ok := points(d, r)
	return ok
}
