package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// aggregate holds the counters, one for each kind of message, and the number n of clients. The package comment has the
// formulas: with one lane (1) for estimates and (2) for their variance, with a lane per coefficient (3) and (4).
type aggregate struct {
	m      *Mechanism
	counts []uint64
	users  uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{m: m, counts: make([]uint64, m.kinds())}
}

func (a *aggregate) Add(lane int, message []byte) error {
	kind, err := protocols.Indices(a.m.kinds()).Decode(message)
	if err != nil {
		return err
	}
	if want := kind / a.m.perLane(); uint64(lane) != want {
		return invalid.Field("lane", strconv.Itoa(lane), strconv.FormatUint(want, 10)+" for this message")
	}
	a.counts[kind]++
	return nil
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || len(o.counts) != len(a.counts) || o.m.units != a.m.units {
		return protocols.ErrMerge
	}
	for kind, n := range o.counts {
		a.counts[kind] += n
	}
	a.users += o.users
	return nil
}

func (a *aggregate) AddUsers(n uint64) { a.users += n }

func (a *aggregate) Reports() uint64 { return a.users }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.counts, visit)
	visit(&a.users)
}

// Total returns the estimated sums: formula (1) of the package comment, or formula (3) with a lane per coefficient.
func (a *aggregate) Total() []float64 {
	m := a.m
	out := make([]float64, m.size)
	for j := range out {
		out[j] = m.difference(a.counts, j, float64(a.users)) * m.bound / m.units
	}
	if m.frame != nil {
		return m.frame.synthesize(out)
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]. With one lane, the error is the noise of two counters plus rounding
// at its worst. With a frame, an entry averages the errors of N coefficients, so the error is nearly normal.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	totals := a.Total()
	out := make([]protocols.ErrorLaw, len(totals))
	if a.m.frame != nil {
		for l, total := range totals {
			out[l] = protocols.Normal{Estimate: total, Plugged: float64(a.users) * a.m.variance(0.25)}
		}
		return out
	}
	noise := &protocols.Noise{}
	noise.AddHalves(a.users)
	if a.m.noise.trials > 0 {
		noise.AddBinomials(float64(a.users*a.m.noise.trials), a.m.noise.chance.Float64())
	}
	for l, total := range totals {
		out[l] = protocols.NoisyEstimate{Estimate: total, Unit: 1 / a.m.units, Noise: noise}
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing slot held a unit of either sign, or nothing. With
// one lane, it changes an entry by at most one unit. With a lane per coefficient, a unit sent instead of a unit not
// sent changes a coefficient by c/h. If units not sent are not counted, a unit sent instead of nothing changes it by
// twice that. An entry changes by 1/√N of it, because every entry of U is ±1/√N (formula (3) of the package comment).
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	unit := a.m.bound / a.m.units
	if a.m.frame != nil {
		unit /= math.Sqrt(float64(a.m.size))
		if a.m.null.trials == 0 {
			unit *= 2
		}
	}
	return protocols.LossEffect{Parts: l.Messages, Lo: -unit, Hi: unit}
}

// difference returns, over n clients, the units of coefficient j's positive part less those of its negative part. With
// a lane per coefficient, it returns the units sent less those not sent.
func (m *Mechanism) difference(counts []uint64, j int, n float64) float64 {
	if m.frame == nil {
		return float64(counts[2*j]) - float64(counts[2*j+1])
	}
	if m.null.trials > 0 {
		sent, not := float64(counts[2*j]), float64(counts[2*j+1])
		return sent - not - n*(m.noise.mean()-m.null.mean())
	}
	return 2*float64(counts[j]) - n*(m.units+2*m.noise.mean())
}

// Exact implements [protocols.Mechanism.Exact]. The variance is formula (2) of the package comment, or (4) with a lane
// per coefficient.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	if total, err = protocols.Ball(m.task.Input, value); err != nil {
		return nil, nil, err
	}
	parts, err := m.parts(total)
	if err != nil {
		return nil, nil, err
	}
	rounding, mean := make([]float64, m.size), 0.0
	for j, p := range parts {
		f := float64(p.fraction) / one
		rounding[j] = f * (1 - f)
		mean += rounding[j] / float64(m.size)
	}
	variance = make([]float64, len(total))
	for l := range variance {
		if variance[l] = m.variance(rounding[l]); m.frame != nil {
			variance[l] = m.variance(mean)
		}
	}
	return total, variance, nil
}

// variance returns one client's variance in an entry, formula (2) or (4) of the package comment. rounding is f(1-f) of
// that entry, f the fraction of a unit, or with a lane per coefficient the mean of f(1-f).
func (m *Mechanism) variance(rounding float64) float64 {
	unit, noise := m.bound/m.units, 2*m.noise.variance()
	if m.frame != nil {
		unit, noise = 2*unit, m.noise.variance()
		if m.null.trials > 0 {
			noise = (noise + m.null.variance()) / 4
		}
	}
	return unit * unit * (noise + rounding)
}

// Worst implements [protocols.Mechanism.Worst]. The variance is that of entries half way between two whole numbers of
// units.
func (m *Mechanism) Worst() protocols.WorstCase {
	return protocols.WorstCase{Value: m.halfWay(), Variance: m.variance(0.25)}
}

// halfWay returns a vector that rounds worst. With one lane it has half a unit in every coordinate, or in as many as
// fit norm 1. With a frame, it makes every coefficient half way between two whole numbers. That is 0 if h is odd.
// Otherwise it lies along the first axis, whose coefficients differ only in sign. If h < κ, it would be longer than 1,
// and the unit vector is close to it: for h = 2, κ = 11/5 it has 0.99 times that rounding's variance.
func (m *Mechanism) halfWay() []float64 {
	v := make([]float64, m.task.Input.Bins)
	half := 0.5 / m.units
	if m.frame != nil {
		if m.most()%2 == 0 {
			v[0] = min(2*half*m.bound*math.Sqrt(float64(m.size)), 1)
		}
		return v
	}
	for l := range v {
		if float64(l+1)*half*half <= 1 {
			v[l] = half
		}
	}
	return v
}
