package realsum

import (
	"math"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

var infinity = math.Inf(1)

// aggregate holds the sum of the reported levels y, the sum of y² for error bars, and the number n of reports. The
// package comment has formula (1) for the estimated sum and formula (2) for the variance of one report.
type aggregate struct {
	m            *Mechanism
	sum, squares uint64
	reports      uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return &aggregate{m: m} }

func (a *aggregate) Add(lane int, message []byte) error {
	y, err := a.m.krr.Symbol(lane, message)
	if err != nil {
		return err
	}
	a.add(1, y)
	a.reports++
	return nil
}

// add adds the reports of some clients that all reported level y.
func (a *aggregate) add(clients, y uint64) {
	a.sum += clients * y
	a.squares += clients * y * y
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.krr != a.m.krr {
		return protocols.ErrMerge
	}
	a.sum += o.sum
	a.squares += o.squares
	a.reports += o.reports
	return nil
}

func (a *aggregate) AddUsers(uint64) {}

func (a *aggregate) Reports() uint64 { return a.reports }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	visit(&a.sum)
	visit(&a.squares)
	visit(&a.reports)
}

// Total returns the estimated sum, formula (1) of the package comment, converted from [0, 1] to the task's range.
func (a *aggregate) Total() []float64 {
	gamma, n := a.m.krr.Gamma.Float64(), float64(a.reports)
	z := (float64(a.sum)/float64(a.m.k) - n*gamma/2) / (1 - gamma)
	return []float64{a.m.task.Input.Lo.Float64()*n + a.m.task.Input.Width()*z}
}

// Errors implements [protocols.Aggregate.Errors]. For a count, the error has the distribution of randomized response.
// For a sum or mean it has the distribution of rounded levels.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	if a.m.task.Query == task.Count {
		return []protocols.ErrorLaw{a.m.krr.Cell(a.sum, a.reports)}
	}
	n, width := float64(a.reports), a.m.task.Input.Width()
	levels := protocols.RoundedLevels{
		K: a.m.k, Gamma: a.m.krr.Gamma.Float64(), Reports: n, Sum: float64(a.sum), Squares: float64(a.squares),
	}
	variance := min(levels.Variance()*width*width, n*a.m.Worst().Variance)
	return []protocols.ErrorLaw{levels.Law(a.Total()[0], width, variance)}
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing client may have any value of the range.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return l.ClientLossEffect(a.reports, lo, hi)
}

// Exact implements [protocols.Mechanism.Exact]. The variance is formula (2) of the package comment, divided by (1-γ)².
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, nil, err
	}
	_, f := math.Modf(x * float64(m.k))
	return []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*x}, []float64{m.variance(x, f)}, nil
}

// Worst implements [protocols.Mechanism.Worst].
func (m *Mechanism) Worst() protocols.WorstCase {
	f := m.worstFraction()
	return protocols.WorstCase{
		Value:    []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*f/float64(m.k)},
		Variance: m.variance(f/float64(m.k), f),
	}
}

// worstFraction returns the f at which v(x), formula (2) of the package comment for the variance of one report, is
// largest; x = f/k. In the cell [i/k, (i+1)/k] v is a concave parabola in f. For a given f, v is largest in the first
// cell of the lower half, which has the larger |x-½|. By symmetry the first cell holds the maximum of all. There the
// derivative vanishes at f = (1-γk)/(2(1-γ)). A count has f = 0.
func (m *Mechanism) worstFraction() float64 {
	if m.task.Query == task.Count {
		return 0
	}
	gamma, k := m.krr.Gamma.Float64(), float64(m.k)
	return min(max((1-gamma*k)/(2*(1-gamma)), 0), 1)
}

// variance returns what one client adds to the variance of the sum: formula (2) of the package comment, divided by
// (1-γ)², in the square of the query's units.
func (m *Mechanism) variance(x, f float64) float64 {
	gamma, k := m.krr.Gamma.Float64(), float64(m.k)
	v := (1-gamma)*f*(1-f)/(k*k) + gamma*(k+2)/(12*k) + gamma*(1-gamma)*(x-0.5)*(x-0.5)
	scale := m.task.Input.Width() / (1 - gamma)
	return v * scale * scale
}
