package rappor

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// aggregate holds the sum of the reported levels and the number n of clients. The package comment has formula (1) for
// the estimated sum and formula (2) for its variance.
type aggregate struct {
	m       *Mechanism
	sum     uint64
	reports uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return &aggregate{m: m} }

func (a *aggregate) Add(lane int, message []byte) error {
	if lane != 0 {
		return invalid.Field("lane", strconv.Itoa(lane), "lane 0")
	}
	i, err := protocols.Indices(a.m.k).Decode(message)
	if err != nil {
		return err
	}
	a.sum += i + 1
	return nil
}

func (a *aggregate) AddUsers(n uint64) { a.reports += n }

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.k != a.m.k || o.m.f != a.m.f {
		return protocols.ErrMerge
	}
	a.sum += o.sum
	a.reports += o.reports
	return nil
}

func (a *aggregate) Reports() uint64 { return a.reports }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	visit(&a.sum)
	visit(&a.reports)
}

// Total returns the estimated sum, formula (1) of the package comment, converted from levels to the task's range.
func (a *aggregate) Total() []float64 {
	f, k, n := a.m.f.Float64(), float64(a.m.k), float64(a.reports)
	levels := (float64(a.sum) - n*f*k*(k+1)/2) / (1 - 2*f)
	return []float64{a.m.task.Input.Lo.Float64()*n + a.m.task.Input.Width()*levels/k}
}

// Errors implements [protocols.Aggregate.Errors]. For a count the error is that of a sum of two binomial variables. For
// a sum or mean it is that of a sum of flipped levels. Its variance is at its worst.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	f := a.m.f.Float64()
	if a.m.task.Query == task.Count {
		return []protocols.ErrorLaw{protocols.Cell{Seen: a.sum, Users: a.reports, Own: 1 - f, Other: f}}
	}
	levels := protocols.RoundedLevels{K: a.m.k, Gamma: f, Reports: float64(a.reports), Sum: float64(a.sum)}
	return []protocols.ErrorLaw{levels.Flipped(a.Total()[0], a.m.task.Input.Width(),
		levels.Reports*a.m.Worst().Variance)}
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing slot held a level from 1 to k, or a cover. By
// formula (1) of the package comment it would add at most k/(1-2f) levels to the estimate.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	return protocols.LossEffect{Parts: l.Messages, Hi: a.m.task.Input.Width() / (1 - 2*a.m.f.Float64())}
}

// Exact implements [protocols.Mechanism.Exact]. The variance is one client's part of formula (2) of the package
// comment.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, nil, err
	}
	_, part := math.Modf(x * float64(m.k))
	return []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*x}, []float64{m.variance(part)}, nil
}

// Worst implements [protocols.Mechanism.Worst]. The worst value lies halfway between two levels.
func (m *Mechanism) Worst() protocols.WorstCase {
	f := m.worstPart()
	return protocols.WorstCase{
		Value:    []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*f/float64(m.k)},
		Variance: m.variance(f),
	}
}

// worstPart returns the fraction of a level at which rounding adds the most variance; a count is not rounded.
func (m *Mechanism) worstPart() float64 {
	if m.task.Query == task.Count {
		return 0
	}
	return 0.5
}

// variance returns what one client adds to the variance of the sum (formula (2) of the package comment), in the square
// of the query's units. part is the value's fraction of a level.
func (m *Mechanism) variance(part float64) float64 {
	f, k, scale := m.f.Float64(), float64(m.k), m.task.Input.Width()/float64(m.k)
	flips := f * (1 - f) / ((1 - 2*f) * (1 - 2*f)) * k * (k + 1) * (2*k + 1) / 6
	return (flips + part*(1-part)) * scale * scale
}
