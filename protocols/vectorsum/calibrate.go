package vectorsum

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Vector},
		Default: []task.Query{task.Vector},
		Rule:    string(accountant.Exact),
		Costs:   []protocols.Case{{Query: task.Vector, Dim: 100}},
		CostParam: &protocols.CostParam{Key: "t",
			Values: func(dim uint64) []uint64 { return protocols.Doublings(min(dim, maxT)) }},
		Trials: []protocols.Case{
			{Query: task.Vector, Dim: 3, Users: 500},
			{Query: task.Vector, Dim: 3, Users: 500, Params: []task.Param{protocols.Whole("t", 2)}},
		},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set, with the
// smallest γ that proves the claim. It keeps parameters k and t that the task names; otherwise t is 1 and Calibrate
// chooses k.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkTask(t); err != nil {
		return err
	}
	reported, levels := uint64(1), uint64(0)
	var err error
	if _, ok := t.Param("t"); ok {
		if reported, err = protocols.WholeParam(t, "t", 1, min(t.Input.Bins, maxT)); err != nil {
			return err
		}
	}
	if _, ok := t.Param("k"); ok {
		if levels, err = protocols.WholeParam(t, "k", 1, maxK); err != nil {
			return err
		}
	}
	m, err := choose(t, reported, levels)
	if err != nil {
		return err
	}
	t.Params = []task.Param{{Key: "gamma", Value: m.krr.Gamma}, protocols.Whole("k", m.k), protocols.Whole("t", m.t)}
	t.Slots = m.slots()
	return nil
}

// choose returns the mechanism that reports this many coordinates, with the given number k of levels. If levels is 0,
// it chooses k.
func choose(t *task.Task, reported, levels uint64) (*Mechanism, error) {
	if levels == 0 && t.Rule == RuleSCM21 {
		levels = newTarget(t).publishedK(t.Input.Bins)
	}
	if levels > 0 {
		return candidate(t, reported, levels)
	}
	return bestLevels(t, reported)
}

// candidate returns the mechanism with the given t and k and the smallest γ that proves the claim.
func candidate(t *task.Task, reported, k uint64) (*Mechanism, error) {
	krr, err := calibrate(t, reported, k+1)
	return &Mechanism{t, t.Input.Bins, reported, k, krr}, err
}

// slack is the largest allowed ratio of the chosen k's worst-case variance to the least one.
const slack = 1.01

// bestLevels tries k = 1, 2, 3, 4, 6, 8, 12, … until the worst-case variance has doubled. If sampling dominates the
// worst case, k hardly changes it, but a larger k helps values inside the range. So among the k whose worst case is
// within the slack, it takes the k with the least variance on average over the range.
func bestLevels(t *task.Task, reported uint64) (*Mechanism, error) {
	var tried []*Mechanism
	least := math.Inf(1)
	for i := 0; levelsAt(i) <= maxK; i++ {
		m, err := candidate(t, reported, levelsAt(i))
		if err != nil {
			if len(tried) == 0 {
				return nil, err
			}
			break
		}
		worst := m.worstVariance(m.largest())
		tried, least = append(tried, m), min(least, worst)
		if worst > 2*least {
			break
		}
	}
	var best *Mechanism
	for _, m := range tried {
		if m.worstVariance(m.largest()) <= slack*least && (best == nil || m.meanVariance() < best.meanVariance()) {
			best = m
		}
	}
	return best, nil
}

// levelsAt returns the i-th number, from 0, of 1, 2, 3, 4, 6, 8, 12, …
func levelsAt(i int) uint64 {
	if i > 0 && i%2 == 0 {
		return 3 << (i/2 - 1)
	}
	return 1 << ((i + 1) / 2)
}
