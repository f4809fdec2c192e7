package realsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Count, task.Sum, task.Mean},
		Default: []task.Query{task.Count, task.Sum, task.Mean},
		Costs:   []protocols.Case{{Query: task.Sum}},
		Trials: []protocols.Case{{Query: task.Count, Users: 500}, {Query: task.Sum, Hi: 4, Users: 500},
			{Query: task.Mean, Users: 500}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim and batch are set. It chooses k, with the
// smallest γ that proves the claim for that k, to minimise the worst-case mean squared error. It uses the task's rule
// or, if the task has none, the tightest rule for k+1 values.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	best, err := candidate(t, 1)
	if err != nil {
		return err
	}
	if t.Query != task.Count {
		best = searchK(t, best)
	}
	t.Rule = best.krr.Rule(t)
	t.Params = []task.Param{
		{Key: "gamma", Value: best.krr.Gamma},
		{Key: "k", Value: randomizer.NewRational(int64(best.k), 1)},
	}
	t.Slots = best.krr.Slots()
	return nil
}

// candidate returns the mechanism with k levels above 0 and the smallest γ that proves the claim.
func candidate(t *task.Task, k uint64) (*Mechanism, error) {
	krr, err := protocols.CalibrateKRR(t, k+1)
	return &Mechanism{t, k, krr}, err
}

// searchK returns the mechanism of least worst-case variance. first is the mechanism for k = 1, which is searched
// apart: two values have a rule of their own. From k = 2 on, the variance first falls and then rises. The search
// doubles k until the variance rises, and then narrows the range by thirds. If no γ < 1 proves the claim for a k, or
// the rule does not cover that k, its cost is infinite.
func searchK(t *task.Task, first *Mechanism) *Mechanism {
	known := map[uint64]*Mechanism{1: first}
	cost := func(k uint64) float64 {
		m, ok := known[k]
		if !ok {
			m, _ = candidate(t, k)
			known[k] = m
		}
		if m.krr.Gamma.Den == 0 {
			return infinity
		}
		return m.Worst().Variance
	}
	lo, hi := uint64(2), uint64(4)
	for hi < maxK && cost(hi) < cost(hi/2) {
		lo, hi = hi/2, hi*2
	}
	for hi-lo > 2 {
		third := (hi - lo) / 3
		if cost(lo+third) <= cost(hi-third) {
			hi -= third
		} else {
			lo += third
		}
	}
	best := uint64(1)
	for k := lo; k <= hi; k++ {
		if cost(k) < cost(best) {
			best = k
		}
	}
	return known[best]
}
