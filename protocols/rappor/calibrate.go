package rappor

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Count, task.Sum, task.Mean},
		Rule:    RuleOthers,
		Costs:   []protocols.Case{{Query: task.Sum, Hi: 16, Params: []task.Param{protocols.Whole("k", 16)}}},
		CostParam: &protocols.CostParam{Key: "k", Best: true,
			Values: func(uint64) []uint64 { return protocols.Doublings(64) }},
		Trials: []protocols.Case{
			{Query: task.Count, Users: 500},
			{Query: task.Sum, Hi: 4, Params: []task.Param{protocols.Whole("k", 4)}, Users: 500},
			{Query: task.Mean, Users: 500},
		},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set. It takes the
// smallest f and the fewest slots that prove the claim. It keeps a k that the task names; else it takes the k with the
// least worst-case variance.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkTask(t); err != nil {
		return err
	}
	g, err := newTarget(t)
	if err != nil {
		return err
	}
	var best *Mechanism
	if _, ok := t.Param("k"); ok || t.Query == task.Count {
		k := uint64(1)
		if ok {
			if k, err = protocols.WholeParam(t, "k", 1, maxLevels(t)); err != nil {
				return err
			}
		}
		if best, err = g.calibrate(t, k); err != nil {
			return err
		}
	} else if best, err = g.bestLevels(t); err != nil {
		return err
	}
	best.b = g.slots(best)
	t.Params = []task.Param{{Key: "f", Value: best.f}, protocols.Whole("k", best.k)}
	t.Slots = best.slots()
	return nil
}

// calibrate returns the mechanism with k levels above 0 and the smallest f that proves the claim.
func (g target) calibrate(t *task.Task, k uint64) (*Mechanism, error) {
	f, err := g.leastFlip(min(k, 2))
	return &Mechanism{task: t, k: k, f: f}, err
}

// bestLevels returns the mechanism of the k with the least worst-case variance. f is the same for every k ≥ 2, because
// a changed value changes two bits. For k = 1 it changes one bit.
func (g target) bestLevels(t *task.Task) (*Mechanism, error) {
	best, err := g.calibrate(t, 1)
	if err != nil {
		return nil, err
	}
	m, err := g.calibrate(t, 2)
	if err != nil {
		return nil, err
	}
	for ; m.k <= maxK; m.k++ {
		if m.Worst().Variance < best.Worst().Variance {
			better := *m
			best = &better
		}
	}
	return best, nil
}

// slots returns the least B, at most k, with which overflowing slots cost at most 1 % of δ.
func (g target) slots(m *Mechanism) uint64 {
	for b := uint64(1); b < m.k; b++ {
		if g.overflow(m.k, b, m.f.Float64()) <= overflowShare*g.delta {
			return b
		}
	}
	return m.k
}
