package augmented

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (p *Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries:             []task.Query{task.Histogram, task.Count, task.Sum, task.Mean},
		Rule:                Rule,
		CalibrateRelayNoise: p.CalibrateRelayNoise,
		Costs: []protocols.Case{
			{Query: task.Count}, {Query: task.Sum}, {Query: task.Histogram, Bins: 16},
		},
		Trials: []protocols.Case{
			{Query: task.Count, Users: 50}, {Query: task.Sum, Hi: 4, Users: 500}, {Query: task.Mean, Users: 500},
			{Query: task.Histogram, Bins: 5, Users: 50},
		},
	}
}

// defaultRelays is the number of relays that are assumed to add dummies if a task names no relays yet.
const defaultRelays = 2

// Calibrate sets the noise, parameters and slots of a task whose query, input, claim and batch are set. It keeps a
// parameter gamma that the task names. It takes the cheapest noise whose error is close to the least possible: within a
// fifth for sums, within a hundredth for histograms.
func (*Protocol) Calibrate(t *task.Task) error { return fit(t, protocols.NoiseOptions{}) }

// CalibrateRelayNoise implements [protocols.Row.CalibrateRelayNoise]. It calibrates with a bound on the dummies per
// relay and batch, and with the gamma of a local ε₀. If the task claims only a total over all epochs, one epoch's δ
// becomes an equal part of the total's, and its ε what the noise gives there.
func (*Protocol) CalibrateRelayNoise(t *task.Task, d protocols.NoiseOptions) error {
	if !(d.MaxDummies >= 0 && d.MaxDummies <= 1<<32) {
		return invalid.Field("max-dummies", decimal.Format(d.MaxDummies, -1), "0 to 4294967296")
	}
	claim := t.Claim
	if err := fit(t, d); err != nil || d.LocalEpsilon == 0 {
		return err
	}
	for range 8 { // The noise depends on gamma. For sums the noise decides the number of cells, and so gamma.
		cells := t.Noise.Cells
		num, den, err := accountant.LocalGamma(cells, d.LocalEpsilon)
		if err != nil {
			return err
		}
		gamma := task.Param{Key: "gamma", Value: randomizer.NewRational(int64(num), den)}
		t.Params = append(slices.DeleteFunc(t.Params, func(p task.Param) bool { return p.Key == "gamma" }), gamma)
		t.Claim = claim
		if err := fit(t, d); err != nil || t.Noise.Cells == cells {
			return err
		}
	}
	return invalid.Field("local-epsilon", decimal.Format(d.LocalEpsilon, -1),
		"a different local epsilon: no number of levels fits this one")
}

// fit does the work of Calibrate, within the bound on dummies.
func fit(t *task.Task, d protocols.NoiseOptions) error {
	gamma, local := t.Param("gamma")
	t.Rule, t.Claim.Assumption, t.Params = Rule, task.NoneHonest, nil
	if local {
		t.Params = []task.Param{{Key: "gamma", Value: gamma}}
	}
	claim := claimOf(t)
	claim.Gaussian = d.Gaussian
	cells, n, err := noise(t, claim, d)
	if bound := new(invalid.FieldError); d.MaxDummies > 0 && errors.As(err, &bound) && bound.Field == "dummies" {
		return invalid.Field("max-dummies", decimal.Format(d.MaxDummies, -1), bound.Want) // bound.Got is per cell
	}
	if err != nil {
		return err
	}
	t.Noise, t.Slots = n, protocols.KRR{K: cells}.Slots()
	if summed(t) {
		t.Params = append(t.Params, task.Param{Key: "k", Value: randomizer.NewRational(int64(cells-1), 1)})
		slices.SortFunc(t.Params, func(a, b task.Param) int { return strings.Compare(a.Key, b.Key) })
	}
	return claimEpoch(t)
}

// leastEpsilon is the least ε that claimEpoch claims for one epoch: a task's ε must be above 0.
const leastEpsilon = 1e-4

// claimEpoch sets the claim of one epoch if the task claims only a total over all epochs.
func claimEpoch(t *task.Task) error {
	total := t.Claim.Total
	if total.IsZero() || t.Claim.Epsilon.Value() > 0 {
		return nil
	}
	curve, err := relaynoise.New(t.Noise)
	if err != nil {
		return err
	}
	if gamma, ok := t.Param("gamma"); ok {
		curve = curve.Local(gamma.Float64())
	}
	delta := total.Delta.Value() / float64(t.MostCopies(t.Epochs.Count))
	lo, hi := 0.0, total.Epsilon.Value()
	for hi-lo > 1e-4*hi && hi > leastEpsilon {
		if mid := (lo + hi) / 2; curve.Delta(mid) <= delta {
			hi = mid
		} else {
			lo = mid
		}
	}
	t.Claim.Epsilon, t.Claim.Delta = task.NewEpsilon(decimal.Up(max(hi, leastEpsilon), 4)),
		task.NewDelta(decimal.Up(delta, 4))
	return nil
}

// claimOf returns the claim that the noise must prove: the total over all epochs, if there is one. With local
// randomization, slightly less noise suffices ([relaynoise.Curve.Local]). claimOf uses that for one epoch; over several
// it stays as slack. For a sum, the noise decides the number of cells: claimOf then leaves out what one cell adds, and
// does so where local randomization alone almost has ε.
func claimOf(t *task.Task) relaynoise.Target {
	if total := t.Claim.Total; !total.IsZero() {
		return relaynoise.Target{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value(),
			Epochs: t.MostCopies(t.Epochs.Count)}
	}
	eps, delta, share := t.Claim.Epsilon.Value(), t.Claim.Delta.Value(), 1.0
	if gamma, ok := t.Param("gamma"); ok {
		share = 1 - gamma.Float64()
		if cells, err := cellsOf(t); err == nil && !summed(t) {
			if of := share - math.Expm1(eps)*gamma.Float64()/float64(cells); of > share/100 {
				share = of
			}
		}
	}
	return relaynoise.Target{
		Epsilon: math.Log1p(math.Expm1(eps)/share) * (1 - 1e-12), Delta: min(delta/share, .5) * (1 - 1e-9), Epochs: 1,
	}
}

// fewCells is the largest number of cells for which noise tries a fixed total of dummies. With more cells, its proof
// takes too much time.
const fewCells = 16

// noise returns the distribution of the task's dummies, within the bound on dummies, and the number of cells.
func noise(t *task.Task, claim relaynoise.Target, d protocols.NoiseOptions) (cells uint64, n *task.Noise, err error) {
	most := d.MaxDummies
	if summed(t) {
		relays := cmp.Or(len(t.Relays), d.Relays, defaultRelays)
		k, n, err := relaynoise.Sum(t.Batch.Size, relays, claim, most)
		return k + 1, n, err
	}
	if cells, err = cellsOf(t); err != nil {
		return 0, nil, err
	}
	if n, ok := slack(t, cells, d); ok {
		return cells, n, nil
	}
	if cells > fewCells {
		n, err = relaynoise.Independent(cells, claim, most/float64(cells))
		return cells, n, err
	}
	// An error means that the proof takes too long, for example for many epochs.
	fixed, failed := relaynoise.FixedTotal(cells, claim)
	if failed == nil && most == 0 {
		return cells, fixed, nil
	}
	n, err = relaynoise.Independent(cells, claim, most/float64(cells))
	if failed == nil && float64(*fixed.Total) <= most*(1+1e-9) && (err != nil || variance(fixed) <= variance(n)) {
		return cells, fixed, nil
	}
	return cells, n, err
}

// slack returns the noise with a rest cell for a task with events and more than two cells. There is none if the task
// claims no total, or if it would need more dummies than d allows: independent cells may need fewer. For a total ε
// below leastEpsilon, which no epoch may claim, it does not search: that would take seconds.
func slack(t *task.Task, cells uint64, d protocols.NoiseOptions) (*task.Noise, bool) {
	events, total := t.Epochs.Events, t.Claim.Total
	if events.IsZero() || total.IsZero() || cells < 3 || total.Epsilon.Value() < leastEpsilon {
		return nil, false
	}
	with := *t
	with.Noise = &task.Noise{Rest: &events.Default}
	claim := claimOf(&with)
	claim.Gaussian = d.Gaussian
	n, err := relaynoise.Slack(cells, events.Default, claim, d.MaxDummies)
	return n, err == nil
}

// variance returns the variance of the number of dummies that one relay adds to a cell, for a noise of equal cells that
// the search returned.
func variance(n *task.Noise) float64 {
	laws, err := relaynoise.NewLaws(n)
	if err != nil {
		return math.Inf(1)
	}
	return laws.Cells[0].Variance()
}
