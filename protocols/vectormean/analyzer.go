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
	if want := kind * a.m.lanes / a.m.kinds(); uint64(lane) != want {
		return invalid.Field("lane", strconv.Itoa(lane), strconv.FormatUint(want, 10)+" for this message")
	}
	a.counts[kind]++
	return nil
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || len(o.counts) != len(a.counts) || o.m.levels != a.m.levels {
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

// Total returns formula (2).
func (a *aggregate) Total() []float64 {
	m, n := a.m, float64(a.users)
	coefficients := make([]float64, m.frame.size)
	for j := range coefficients {
		x := 0.0
		for i := range m.noise {
			x += math.Ldexp(a.bit(j, i), i) // (1)
		}
		coefficients[j] = m.bound * (2*x/float64(m.levels) - n)
	}
	return m.frame.synthesize(coefficients) // (2)
}

// bit returns the unbiased estimate of the number of clients whose bit i of coefficient j is 1.
func (a *aggregate) bit(j, i int) float64 {
	first := uint64(j*len(a.m.noise)+i) * a.m.sides
	if a.m.sides == 2 {
		return (float64(a.counts[first+1]) - float64(a.counts[first]) + float64(a.users)) / 2
	}
	return float64(a.counts[first]) - float64(a.users)*a.m.noise[i].mean()
}

// Exact is [protocols.Mechanism.Exact]; the variance is formula (3).
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	if total, err = protocols.Ball(m.task.Input, value); err != nil {
		return nil, nil, err
	}
	unit, err := m.unit(total)
	if err != nil {
		return nil, nil, err
	}
	rounding := 0.0
	for _, u := range unit {
		_, f := math.Modf(u * float64(m.levels))
		rounding += f * (1 - f)
	}
	variance = make([]float64, len(total))
	for l := range variance {
		variance[l] = m.variance(rounding / float64(m.frame.size))
	}
	return total, variance, nil
}

// variance returns (3) for a given mean of f(1-f).
func (m *Mechanism) variance(rounding float64) float64 {
	for i, n := range m.noise {
		rounding += math.Ldexp(n.variance(), 2*i) / float64(m.sides)
	}
	scale := 2 * m.bound / float64(m.levels)
	return scale * scale * rounding // (3)
}

// WorstVariance is [protocols.Mechanism.WorstVariance]: f = ½ for every coefficient.
func (m *Mechanism) WorstVariance() float64 { return m.variance(0.25) }

// WorstValue is [protocols.Mechanism.WorstValue]: the zero vector, whose coefficients lie halfway
// between two levels, L being odd.
func (m *Mechanism) WorstValue() []float64 { return make([]float64, m.task.Input.Bins) }
