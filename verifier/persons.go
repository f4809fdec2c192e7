package verifier

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/wire/task"
)

// personsKey is what the costs of persons depend on.
type personsKey struct {
	copies, epochs uint64
	delta          float64
}

// ofPersons returns the costs of persons whose browser's reports in a number of epochs are covered by a number of
// copies of the law of one epoch, which cost a visitor (ε, δ) together. The devices' figure is at that δ.
func (c *costs) ofPersons(copies, epochs uint64, visitor ledger.PersonCost) (*ledger.PersonCosts, error) {
	key := personsKey{copies, epochs, visitor.Delta}
	if known, ok := c.persons[key]; ok || copies == 0 || visitor.Epsilon == nil || visitor.Delta <= 0 {
		return known, nil
	}
	t, out := c.open.Task, &ledger.PersonCosts{}
	single := copies - 1 // Copies for epochs with one report, if one epoch has two.
	if anew := allowance(t); anew > 0 {
		single = min(copies+anew-2, epochs-1)
	}
	two, err := c.equal()
	if err != nil {
		return nil, err
	}
	if two == nil {
		if err := c.byGroupPrivacy(out, single, visitor); err != nil {
			return nil, err
		}
	} else {
		law, err := c.law()
		if err != nil {
			return nil, err
		}
		wiped := []compose.Observation{two.Observation(1)}
		if single > 0 {
			wiped = append(wiped, law.Observation(single))
		}
		one := t.Claim.Delta.Value()
		out.Exact = true
		out.Devices = at([]compose.Observation{two.Observation(copies)}, visitor.Delta)
		out.Wiped = at(wiped, visitor.Delta)
		out.Batch = at([]compose.Observation{two.Observation(1)}, one)
	}
	c.persons[key] = out
	return out, nil
}

// allowance returns how many more copies of the law a browser that has lost its storage spends in a window of the cap
// or of the events; 0 if the task has neither.
func allowance(t *task.Task) uint64 {
	events := t.Epochs.Events.Most
	if t.Noise == nil || t.Noise.Rest == nil {
		events *= 2 // The law covers one epoch in which two sequences of events differ.
	}
	return max(t.Epochs.Cap.Reports, events)
}

// at returns the cost of observations at a δ, rounded up.
func at(seen []compose.Observation, delta float64) ledger.PersonCost {
	eps, err := compose.Epsilon(seen, delta)
	if err != nil {
		return ledger.PersonCost{Delta: delta} // Infinite losses alone exceed δ.
	}
	return ledger.PersonCost{Epsilon: &eps, Delta: delta}
}

// equal returns the curve of two equal reports in one batch, or nil if it is not known. It is none for events, whose
// copies cover changes from and to the default.
func (c *costs) equal() (*relaynoise.Curve, error) {
	t := c.open.Task
	_, local := t.Param("gamma")
	if n := t.Noise; n == nil || n.Kind != task.NoiseCells || n.Tilt != nil || local || !t.Epochs.Events.IsZero() {
		return nil, nil
	}
	return relaynoise.Group(t.Noise, 2)
}

// byGroupPrivacy sets costs that hold for every law (docs/proofs/group.md).
func (c *costs) byGroupPrivacy(out *ledger.PersonCosts, single uint64, visitor ledger.PersonCost) (err error) {
	claim := c.open.Claim
	if out.Devices, err = group(*visitor.Epsilon, visitor.Delta); err != nil {
		return err
	}
	if out.Batch, err = group(claim.Epsilon.Value(), claim.Delta.Value()); err != nil {
		return err
	}
	rest, err := c.of(single)
	if err != nil || out.Batch.Epsilon == nil {
		out.Wiped = ledger.PersonCost{Delta: 1}
		return err
	}
	added := addSpends(rest, compose.Spend{Epsilon: *out.Batch.Epsilon, Delta: out.Batch.Delta})
	out.Wiped = ledger.PersonCost{Epsilon: &added.Epsilon, Delta: math.Min(1, added.Delta)}
	return nil
}

// group returns the cost of two reports with one cost each, by group privacy.
func group(eps, delta float64) (ledger.PersonCost, error) {
	twice, sum, err := accountant.GroupPrivacy(eps, delta, 2)
	if err != nil || sum >= 1 {
		return ledger.PersonCost{Delta: 1}, err
	}
	return ledger.PersonCost{Epsilon: &twice, Delta: sum}, nil
}

// setPersons adds the costs of persons to a report.
func (k *costs) setPersons(r *Report) (err error) {
	visitor, starts := ledger.PersonCost{Epsilon: r.Ledger.Epsilon, Delta: r.Ledger.Delta}, []uint64{}
	for _, e := range r.Ledger.Epochs {
		starts = append(starts, uint64(e.Start.Unix()))
	}
	epochs, copies := uint64(len(starts)), k.open.MostCopiesAt(starts)
	if p := r.Ledger.Published; p != nil {
		visitor, epochs, copies = ledger.PersonCost{Epsilon: p.Epsilon, Delta: p.Delta}, p.Epochs, p.Copies
	}
	r.Ledger.Persons, err = k.ofPersons(copies, epochs, visitor)
	return err
}
