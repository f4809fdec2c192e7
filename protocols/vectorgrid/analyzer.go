package vectorgrid

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// aggregate holds, for every coordinate, the sum of the reported levels w_j and of their squares (for error bars), and
// the number n of reports. The package comment has formula (1) for the estimates and formula (2) for their variance.
type aggregate struct {
	m             *Mechanism
	sums, squares []uint64
	reports       uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{m: m, sums: make([]uint64, m.d), squares: make([]uint64, m.d)}
}

func (a *aggregate) Add(lane int, message []byte) error {
	point, err := a.m.krr.Symbol(lane, message)
	if err != nil {
		return err
	}
	for j := range a.sums {
		a.add(j, 1, point%(a.m.r+1))
		point /= a.m.r + 1
	}
	a.reports++
	return nil
}

// add adds the reports of some clients that all reported this level for coordinate j.
func (a *aggregate) add(j int, clients, level uint64) {
	a.sums[j] += clients * level
	a.squares[j] += clients * level * level
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.krr != a.m.krr || o.m.r != a.m.r {
		return protocols.ErrMerge
	}
	for j, sum := range o.sums {
		a.sums[j] += sum
		a.squares[j] += o.squares[j]
	}
	a.reports += o.reports
	return nil
}

func (a *aggregate) AddUsers(uint64) {}

func (a *aggregate) Reports() uint64 { return a.reports }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.sums, visit)
	protocols.VisitAll(a.squares, visit)
	visit(&a.reports)
}

// Total returns the estimated sums, formula (1) of the package comment, converted from [0, 1] to the task's range.
func (a *aggregate) Total() []float64 {
	gamma, n, r := a.m.krr.Gamma.Float64(), float64(a.reports), float64(a.m.r)
	out := make([]float64, len(a.sums))
	for j, sum := range a.sums {
		z := (float64(sum)/r - n*gamma/2) / (1 - gamma)
		out[j] = a.m.task.Input.Lo.Float64()*n + a.m.task.Input.Width()*z
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]. Each coordinate of a reported grid point is randomized response over
// its r+1 levels.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	n, width := float64(a.reports), a.m.task.Input.Width()
	out := make([]protocols.ErrorLaw, len(a.sums))
	for j, total := range a.Total() {
		levels := protocols.RoundedLevels{
			K: a.m.r, Gamma: a.m.krr.Gamma.Float64(), Reports: n, Sum: float64(a.sums[j]),
			Squares: float64(a.squares[j]),
		}
		variance := min(levels.Variance()*width*width, n*a.m.variance(a.m.worst()))
		out[j] = levels.Law(total, width, variance)
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing client may have any valid vector.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return l.ClientLossEffect(a.reports, lo, hi)
}

// Exact implements [protocols.Mechanism.Exact]. The variance is formula (2) of the package comment, in the query's
// units.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	u, err := m.unit(value)
	if err != nil {
		return nil, nil, err
	}
	total, variance = make([]float64, m.d), make([]float64, m.d)
	for j, x := range u {
		total[j] = m.task.Input.Lo.Float64() + m.task.Input.Width()*x
		variance[j] = m.variance(x)
	}
	return total, variance, nil
}

// variance returns what one client adds to the variance of a coordinate, formula (2) of the package comment, in the
// square of the query's units. x is the coordinate in [0, 1].
func (m *Mechanism) variance(x float64) float64 {
	scale := m.task.Input.Width() / (1 - m.krr.Gamma.Float64())
	return protocols.RoundedVariance(m.krr.Gamma.Float64(), m.r, x) * scale * scale
}

// worst returns the u_j in [0, 1] that adds the most variance, by formula (2) of the package comment. A vector of norm
// at most 1 can have this value in only one coordinate.
func (m *Mechanism) worst() float64 { return protocols.WorstRounded(m.krr.Gamma.Float64(), m.r, 1, 0) }

// Worst implements [protocols.Mechanism.Worst]. For query vector, every coordinate is at its worst. For vectors of norm
// at most 1, only the first coordinate is, and the others are 0.
func (m *Mechanism) Worst() protocols.WorstCase {
	out := make([]float64, m.d)
	for j := range out {
		if j == 0 || m.task.Query == task.Vector {
			out[j] = m.task.Input.Lo.Float64() + m.task.Input.Width()*m.worst()
		}
	}
	return protocols.WorstCase{Value: out, Variance: m.variance(m.worst())}
}

// WorstTotal returns bounds on the variance that one client can add to each entry of the estimated total. For query
// vector it is the worst of each coordinate. For vectormean it is an equal part of the worst sum, with Σ(u_j-½)² = ¼
// and every u_j·r half way between whole numbers.
func (m *Mechanism) WorstTotal() []float64 {
	out := make([]float64, m.d)
	for j := range out {
		out[j] = m.cost() / float64(m.d)
	}
	return out
}

// cost returns the sum of the bounds of [Mechanism.WorstTotal]. Calibration minimises it.
func (m *Mechanism) cost() float64 {
	d, r := float64(m.d), float64(m.r)
	if m.task.Query == task.Vector {
		return d * m.variance(m.worst())
	}
	gamma := m.krr.Gamma.Float64()
	v := d*((1-gamma)/(4*r*r)+gamma*(r+2)/(12*r)) + gamma*(1-gamma)/4
	scale := m.task.Input.Width() / (1 - gamma)
	return v * scale * scale
}
