package strings

import (
	"github.com/doona-dp/doona/protocols"
)

// aggregate holds the number of messages in every cell of every table. The package comment has formula (2) for the
// estimated number of clients in a cell.
type aggregate struct {
	m       *Mechanism
	counts  []uint64
	draws   uint64 // D′: how often relays drew dummies. Each relay draws once per batch.
	dummies uint64 // Number of dummies that the relays' manifests state.
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return m.newAggregate() }

func (m *Mechanism) newAggregate() *aggregate {
	return &aggregate{m: m, counts: make([]uint64, m.plan.cells())}
}

func (a *aggregate) Add(lane int, message []byte) error {
	y, err := a.m.read(lane, message)
	if err != nil {
		return err
	}
	a.counts[y]++
	return nil
}

func (a *aggregate) AddUsers(uint64) {}

// AddDummies implements [protocols.DummyAggregate.AddDummies].
func (a *aggregate) AddDummies(draws, dummies uint64) {
	a.draws += draws
	a.dummies += dummies
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.krr != a.m.krr || o.m.plan != a.m.plan {
		return protocols.ErrMerge
	}
	for y, n := range o.counts {
		a.counts[y] += n
	}
	a.AddDummies(o.draws, o.dummies)
	return nil
}

// Reports returns the number of messages that are not dummies. It can be slightly below the number of clients, because
// relays may have dropped dummies of upstream relays.
func (a *aggregate) Reports() uint64 {
	all := a.messages()
	return all - min(all, a.dummies)
}

func (a *aggregate) messages() (all uint64) {
	for _, n := range a.counts {
		all += n
	}
	return all
}

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.counts, visit)
	visit(&a.draws)
	visit(&a.dummies)
}

// added returns D′·M, the number of dummies that relays should have added.
func (a *aggregate) added() float64 {
	if a.m.task.Noise == nil {
		return 0
	}
	return float64(a.draws) * float64(a.m.task.Noise.Pool)
}

// Total returns, for every cell of every table, the estimated number of clients whose texts fall in it: formula (2) of
// the package comment.
func (a *aggregate) Total() []float64 {
	_, other := a.m.shares()
	background := float64(a.Reports())*other + a.added()/float64(a.m.plan.cells())
	out, unit := make([]float64, len(a.counts)), a.m.unit()
	for y, n := range a.counts {
		out[y] = (float64(n) - background) * unit
	}
	return out
}

// DummyVariance implements [protocols.DummyAggregate.DummyVariance].
func (a *aggregate) DummyVariance() []float64 {
	p, unit := 1/float64(a.m.plan.cells()), a.m.unit()
	out := make([]float64, len(a.counts))
	for y := range out {
		out[y] = a.added() * p * (1 - p) * unit * unit
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]. With noise by clients, a cell's number of messages is the sum of two
// binomial variables. With noise by relays, it has many small parts, so its error is nearly normal.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	out := make([]protocols.ErrorLaw, len(a.counts))
	if a.m.task.Noise == nil {
		own, other := a.m.shares()
		n := a.Reports()
		for y, seen := range a.counts {
			out[y] = protocols.Cell{Seen: seen, Users: n, Own: own, Other: other}
		}
		return out
	}
	own, other := a.m.variances()
	n, dummies, unit := float64(a.Reports()), a.DummyVariance(), a.m.unit()
	for y, total := range a.Total() {
		held := min(max(total, 0), n)
		out[y] = protocols.Normal{Estimate: total, Plugged: held*own + (n-held)*other + dummies[y], Step: unit}
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect].
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	return l.ClientLossEffect(a.Reports(), 0, 1)
}

// variances returns what one client adds to the variance of a cell's count: own for a cell that its text falls in,
// other for any other cell.
func (m *Mechanism) variances() (own, other float64) {
	p, q := m.shares()
	unit := m.unit()
	return p * (1 - p) * unit * unit, q * (1 - q) * unit * unit
}

// Exact implements [protocols.Mechanism.Exact].
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	text, err := m.text(value)
	if err != nil {
		return nil, nil, err
	}
	own, other := m.variances()
	total, variance = make([]float64, m.plan.cells()), make([]float64, m.plan.cells())
	for y := range variance {
		variance[y] = other
	}
	for table := range m.plan.tables() {
		y := m.plan.of(table, text)
		total[y], variance[y] = 1, own
	}
	return total, variance, nil
}

// Worst implements [protocols.Mechanism.Worst]. A client adds most to a cell of its text, with any text.
func (m *Mechanism) Worst() protocols.WorstCase {
	own, other := m.variances()
	return protocols.WorstCase{Value: Value("a"), Variance: max(own, other)}
}
