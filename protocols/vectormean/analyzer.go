package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// aggregate is the sufficient statistic: the counters and n.
type aggregate struct {
	m      *Mechanism
	counts []uint64
	users  uint64
}

// Aggregate is [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{m: m, counts: make([]uint64, m.kinds())}
}

func (a *aggregate) Add(lane int, message []byte) error {
	kind, err := protocols.DecodeIndex(message, a.m.kinds())
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

// Total returns (1), or (3) with a lane per coefficient.
func (a *aggregate) Total() []float64 {
	m := a.m
	out := make([]float64, m.size)
	each := uint64(m.size) / m.lanes
	for j := range out {
		plus := uint64(j)/each*m.perLane() + 2*(uint64(j)%each)
		out[j] = (float64(a.counts[plus]) - float64(a.counts[plus+1])) * m.bound / m.units // (1)
	}
	if m.frame != nil {
		return m.frame.synthesize(out) // (3)
	}
	return out
}

// Errors is [protocols.Aggregate.Errors]: the noise of two counters and the worst rounding. With a frame, an
// entry is the mean of those of N coefficients, and normal.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	noise, unit := &protocols.Noise{}, a.m.bound/a.m.units
	noise.AddHalves(a.users)
	if a.m.noise.trials > 0 {
		noise.AddBinomials(float64(a.users*a.m.noise.trials), a.m.noise.chance.Float64())
	}
	totals := a.Total()
	out := make([]protocols.ErrorLaw, len(totals))
	for l, total := range totals {
		if out[l] = (protocols.Noisy{Estimate: total, Unit: unit, Noise: noise}); a.m.frame != nil {
			out[l] = protocols.Normal{Estimate: total, Plugged: noise.Variance() * unit * unit}
		}
	}
	return out
}

// Exact is [protocols.Mechanism.Exact]; the variance is (2) or (4).
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

// variance returns (2) or (4) for f(1-f) or its mean.
func (m *Mechanism) variance(rounding float64) float64 {
	unit := m.bound / m.units
	return unit * unit * (2*m.noise.variance() + rounding)
}

// WorstVariance is [protocols.Mechanism.WorstVariance]: f = ½.
func (m *Mechanism) WorstVariance() float64 { return m.variance(0.25) }

// WorstValue is [protocols.Mechanism.WorstValue]: half a unit in every coordinate, or in as many as fit
// norm 1. With a frame, half a unit in every coefficient: those of the first axis are all equal but for
// their signs, and as small as can be.
func (m *Mechanism) WorstValue() []float64 {
	v := make([]float64, m.task.Input.Bins)
	half := 0.5 / m.units
	if m.frame != nil {
		v[0] = half * m.bound * math.Sqrt(float64(m.size))
		return v
	}
	for l := range v {
		if float64(l+1)*half*half <= 1 {
			v[l] = half
		}
	}
	return v
}
