package augmented

import (
	"math"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// aggregate holds the number N_j of messages of every cell j, and the number of dummies and of their draws. The package
// comment has formula (1) for estimated counts, (2) for estimated sums.
type aggregate struct {
	m       *Mechanism
	counts  []uint64
	draws   uint64 // D: how often relays drew dummies. Each relay draws once per batch.
	dummies uint64 // Number of dummies that the relays' manifests state.
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return m.newAggregate() }

func (m *Mechanism) newAggregate() *aggregate {
	return &aggregate{m: m, counts: make([]uint64, m.krr.K)}
}

func (a *aggregate) Add(lane int, message []byte) error {
	cell, err := a.m.krr.Symbol(lane, message)
	if err != nil {
		return err
	}
	a.add(1, cell)
	return nil
}

// add adds this many messages of one cell.
func (a *aggregate) add(messages, cell uint64) {
	if messages > 0 {
		a.counts[cell] += messages
	}
}

func (a *aggregate) AddUsers(uint64) {}

// AddDummies implements [protocols.DummyAggregate.AddDummies].
func (a *aggregate) AddDummies(draws, dummies uint64) {
	a.draws += draws
	a.dummies += dummies
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.krr != a.m.krr {
		return protocols.ErrMerge
	}
	for j, n := range o.counts {
		a.counts[j] += n
	}
	a.AddDummies(o.draws, o.dummies)
	return nil
}

// DummyVariance implements [protocols.DummyAggregate.DummyVariance].
func (a *aggregate) DummyVariance() []float64 {
	laws, left, draws := a.m.laws(), 1-a.m.gamma(), float64(a.draws)
	if summed(a.m.task) {
		unit := a.m.task.Input.Width() / float64(a.m.krr.K-1) / left
		return []float64{draws * laws.Sum.Variance() * unit * unit}
	}
	var out []float64
	for _, law := range laws.Cells[a.firstEntry():] {
		out = append(out, draws*law.Variance()/(left*left))
	}
	return out
}

// Reports returns the number of messages that are not dummies. It can be slightly below the number of clients, because
// relays may have dropped dummies of upstream relays.
func (a *aggregate) Reports() uint64 {
	all := uint64(0)
	for _, n := range a.counts {
		all += n
	}
	return all - min(all, a.dummies)
}

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.counts, visit)
	visit(&a.draws)
	visit(&a.dummies)
}

// Total returns the estimated counts, formula (1) of the package comment. For a count query that is the count of cell
// 1. For a sum or mean it returns the estimated sum, formula (2), converted to the task's range.
func (a *aggregate) Total() []float64 {
	gamma, k, n := a.m.gamma(), float64(a.m.krr.K), float64(a.Reports())
	a.m.laws()
	if summed(a.m.task) {
		zero := float64(a.m.task.Noise.Tilt.Zero)
		sum := zero*n - float64(a.draws)*a.m.mean
		for j, messages := range a.counts {
			sum += (float64(j) - zero) * float64(messages)
		}
		z := (sum/(k-1) - n*gamma/2) / (1 - gamma)
		return []float64{a.m.task.Input.Lo.Float64()*n + a.m.task.Input.Width()*z}
	}
	out := make([]float64, 0, len(a.counts))
	for j := a.firstEntry(); j < len(a.counts); j++ {
		out = append(out, (float64(a.counts[j])-float64(a.draws)*a.m.means[j]-n*gamma/k)/(1-gamma))
	}
	return out
}

// firstEntry returns the cell of the answer's first entry: 1 for a count, whose answer has only cell 1, else 0.
func (a *aggregate) firstEntry() int {
	if a.m.task.Query.Info().Shape == task.Scalar {
		return 1
	}
	return 0
}

// Errors implements [protocols.Aggregate.Errors]. The error has the exact distribution of the dummies. A normal
// distribution widens it for rounding and local randomization, which add up many small errors.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	laws, totals, gamma := a.m.laws(), a.Total(), a.m.gamma()
	if summed(a.m.task) {
		unit := a.m.task.Input.Width() / float64(a.m.krr.K-1) / (1 - gamma)
		return []protocols.ErrorLaw{a.m.dummyLaw(laws.Sum, a.draws).errorLaw(totals[0], unit, a.clients())}
	}
	out := make([]protocols.ErrorLaw, len(totals))
	for i, total := range totals {
		law := laws.Cells[i+a.firstEntry()]
		out[i] = a.m.dummyLaw(law, a.draws).errorLaw(total, 1/(1-gamma), a.randomized(total))
	}
	return out
}

// randomized returns the variance that local randomization adds to the number N_j of messages of a cell, if held
// clients hold it.
func (a *aggregate) randomized(held float64) float64 {
	gamma, n := a.m.gamma(), float64(a.Reports())
	if gamma == 0 || n == 0 {
		return 0
	}
	cell := a.m.krr.Cell(uint64(max(0, held*(1-gamma)+n*gamma/float64(a.m.krr.K))), uint64(n))
	return cell.Variance() * (1 - gamma) * (1 - gamma)
}

// clients returns the variance that clients' rounding and local randomization add to Σ j·N_j.
func (a *aggregate) clients() float64 {
	a.m.laws()
	levels := protocols.RoundedLevels{K: a.m.krr.K - 1, Gamma: a.m.gamma(), Reports: float64(a.Reports())}
	if levels.Reports == 0 {
		return 0
	}
	for j, messages := range a.counts {
		own := float64(messages) - float64(a.draws)*a.m.means[j]
		levels.Sum += float64(j) * own
		levels.Squares += float64(j) * float64(j) * own
	}
	scale := float64(a.m.krr.K-1) * (1 - levels.Gamma)
	return levels.Variance() * scale * scale
}

// LossEffect implements [protocols.Aggregate.LossEffect]. Each missing message changes an entry by at most one client,
// up or down. It may be a client's or a dummy; and if a relay misstates its dummies, the difference counts as clients.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return l.ClientLossEffect(a.Reports(), lo, hi)
}

// Exact implements [protocols.Mechanism.Exact]. The variance covers rounding and local randomization, but no dummies.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	if m.task.Query == task.Histogram {
		j, err := protocols.Category(m.task.Input, value)
		if err != nil {
			return nil, nil, err
		}
		total, variance = make([]float64, m.krr.K), make([]float64, m.krr.K)
		for i := range variance {
			variance[i] = m.answers(0)
		}
		total[j], variance[j] = 1, m.answers(1)
		return total, variance, nil
	}
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, nil, err
	}
	lo, width := m.task.Input.Lo.Float64(), m.task.Input.Width()
	if !summed(m.task) {
		return []float64{x}, []float64{m.answers(x)}, nil
	}
	return []float64{lo + width*x}, []float64{width * width * m.level(x)}, nil
}

// answers returns the variance that local randomization adds to the count of a cell, for one client. share is 1 if the
// client holds the cell, else 0.
func (m *Mechanism) answers(share float64) float64 {
	gamma, k := m.gamma(), float64(m.krr.K)
	p := share*(1-gamma) + gamma/k
	return p * (1 - p) / ((1 - gamma) * (1 - gamma))
}

// level returns the variance that rounding and local randomization add to the sum, for a client with value x in [0, 1]:
// formula (2) of package realsum, divided by (1−γ)².
func (m *Mechanism) level(x float64) float64 {
	gamma, k := m.gamma(), float64(m.krr.K-1)
	_, f := math.Modf(x * k)
	v := (1-gamma)*f*(1-f)/(k*k) + gamma*m.krr.BlanketVariance() + gamma*(1-gamma)*(x-.5)*(x-.5)
	return v / ((1 - gamma) * (1 - gamma))
}

// Worst implements [protocols.Mechanism.Worst]. For a sum, a client adds most half way between the two lowest levels
// or, with local randomization, somewhat lower.
func (m *Mechanism) Worst() protocols.WorstCase {
	lo, width := m.task.Input.Lo.Float64(), m.task.Input.Width()
	if !summed(m.task) {
		return protocols.WorstCase{Value: []float64{lo}, Variance: max(m.answers(0), m.answers(1))}
	}
	return protocols.WorstCase{Value: []float64{lo + width*m.worst()}, Variance: width * width * m.level(m.worst())}
}

// worst returns the value in [0, 1] that adds most variance to a sum. Between two levels the variance is a concave
// parabola in x. The lowest cell holds the maximum, at the fraction f = (1−γk)/(2(1−γ)) of the cell, as in package
// realsum.
func (m *Mechanism) worst() float64 {
	gamma, k := m.gamma(), float64(m.krr.K-1)
	return min(max((1-gamma*k)/(2*(1-gamma)), 0), 1) / k
}

// laws returns the distributions of the dummies that one relay adds per batch. It also sets m.means and m.mean. It
// ignores the error, because [relaynoise.New] has checked the task's noise.
func (m *Mechanism) laws() *relaynoise.Laws {
	m.once.Do(func() {
		m.known, _ = relaynoise.NewLaws(m.task.Noise)
		m.mean = m.known.Sum.Mean()
		for _, law := range m.known.Cells {
			m.means = append(m.means, law.Mean())
		}
	})
	return m.known
}
