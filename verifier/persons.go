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
	reports, epochs uint64
	delta           float64
}

// ofPersons returns the costs of persons whose browser makes a number of reports in a number of epochs, which cost a
// visitor (ε, δ) together. The devices' figure is at that δ.
func (c *costs) ofPersons(reports, epochs uint64, visitor ledger.PersonCost) (*ledger.PersonCosts, error) {
	key := personsKey{reports, epochs, visitor.Delta}
	if known, ok := c.persons[key]; ok || reports == 0 || visitor.Epsilon == nil || visitor.Delta <= 0 {
		return known, nil
	}
	t, out := c.open.Task, &ledger.PersonCosts{}
	single := reports - 1 // Reports in epochs with one, if one epoch has two.
	if limit := t.Epochs.Cap; !limit.IsZero() {
		single = min(reports+limit.Reports-2, epochs-1)
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
		out.Devices = at([]compose.Observation{two.Observation(reports)}, visitor.Delta)
		out.Wiped = at(wiped, visitor.Delta)
		out.Batch = at([]compose.Observation{two.Observation(1)}, one)
	}
	c.persons[key] = out
	return out, nil
}

// at returns the cost of observations at a δ, rounded up.
func at(seen []compose.Observation, delta float64) ledger.PersonCost {
	eps, err := compose.Epsilon(seen, delta)
	if err != nil {
		return ledger.PersonCost{Delta: delta} // Infinite losses alone exceed δ.
	}
	return ledger.PersonCost{Epsilon: &eps, Delta: delta}
}

// equal returns the curve of two equal reports in one batch, or nil if it is not known.
func (c *costs) equal() (*relaynoise.Curve, error) {
	t := c.open.Task
	_, local := t.Param("gamma")
	if n := t.Noise; n == nil || n.Kind != task.NoiseCells || n.Tilt != nil || n.Rest != nil ||
		local {
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

// setPersons adds the costs of persons to a report of a task with these epochs.
func (k *costs) setPersons(r *Report, of task.Epochs) (err error) {
	visitor, starts := ledger.PersonCost{Epsilon: r.Ledger.Epsilon, Delta: r.Ledger.Delta}, []uint64{}
	for _, e := range r.Ledger.Epochs {
		starts = append(starts, uint64(e.Start.Unix()))
	}
	epochs, reports := uint64(len(starts)), of.MostReportsAt(starts)
	if p := r.Ledger.Published; p != nil {
		visitor, epochs, reports = ledger.PersonCost{Epsilon: p.Epsilon, Delta: p.Delta}, p.Epochs, p.Reports
	}
	r.Ledger.Persons, err = k.ofPersons(reports, epochs, visitor)
	return err
}
