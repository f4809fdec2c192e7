package vectorsum

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// aggregate holds, for every coordinate, the sum of the reported levels y, the number |y_l| of reports, and the sum of
// y² for error bars. The package comment has formulas (1) and (2) for the estimates and formula (3) for their variance.
type aggregate struct {
	m        *Mechanism
	sums     []uint64
	squares  []uint64
	counts   []uint64
	messages []uint64 // Number of messages of each block.
	users    uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{
		m: m, sums: make([]uint64, m.d), squares: make([]uint64, m.d), counts: make([]uint64, m.d),
		messages: make([]uint64, m.t),
	}
}

func (a *aggregate) Add(lane int, message []byte) error {
	if lane < 0 || uint64(lane) >= a.m.t {
		return invalid.Field("lane", strconv.Itoa(lane), "0 to "+strconv.FormatUint(a.m.t-1, 10))
	}
	v, err := protocols.Indices(a.m.d * a.m.krr.K).Decode(message)
	if err != nil {
		return err
	}
	l, y := v/a.m.krr.K, v%a.m.krr.K
	if first, size := a.m.block(uint64(lane)); l < first || l >= first+size {
		return invalid.Field("message", "coordinate "+strconv.FormatUint(l, 10),
			strconv.FormatUint(first, 10)+" to "+strconv.FormatUint(first+size-1, 10)+" in lane "+strconv.Itoa(lane))
	}
	a.add(l, 1, y)
	return nil
}

// add adds the reports of some clients that all reported level y for coordinate l.
func (a *aggregate) add(l, clients, y uint64) {
	a.sums[l] += clients * y
	a.squares[l] += clients * y * y
	a.counts[l] += clients
	a.messages[a.m.blockOf(l)] += clients
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.krr != a.m.krr || o.m.d != a.m.d || o.m.t != a.m.t {
		return protocols.ErrMerge
	}
	for l := range o.sums {
		a.sums[l] += o.sums[l]
		a.squares[l] += o.squares[l]
		a.counts[l] += o.counts[l]
	}
	for b := range o.messages {
		a.messages[b] += o.messages[b]
	}
	a.users += o.users
	return nil
}

func (a *aggregate) AddUsers(n uint64) { a.users += n }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.sums, visit)
	protocols.VisitAll(a.squares, visit)
	protocols.VisitAll(a.counts, visit)
	protocols.VisitAll(a.messages, visit)
	visit(&a.users)
}

// Reports counts messages if there is one per client, and so leaves out lost reports.
func (a *aggregate) Reports() uint64 {
	if a.m.t == 1 {
		return a.messages[0]
	}
	return a.users
}

// Reported returns formula (1) of the package comment. For every coordinate it gives the unbiased estimate of the sum,
// in [0, 1] units, over the clients that reported the coordinate, and their number |y_l|.
func (a *aggregate) Reported() (sums []float64, counts []uint64) {
	gamma, k := a.m.krr.Gamma.Float64(), float64(a.m.k)
	sums = make([]float64, len(a.sums))
	for l := range sums {
		sums[l] = (float64(a.sums[l])/k - float64(a.counts[l])*gamma/2) / (1 - gamma)
	}
	return sums, append(counts, a.counts...)
}

// Total returns the estimated sums over all clients, formula (2) of the package comment, converted from [0, 1] to the
// task's range.
func (a *aggregate) Total() []float64 {
	out, counts := a.Reported()
	lo := a.m.task.Input.Lo.Float64()
	for l, z := range out {
		n := float64(a.messages[a.m.blockOf(uint64(l))])
		sum := n/2 + a.m.sizeOf(l)*(z-float64(counts[l])/2)
		out[l] = lo*n + a.m.task.Input.Width()*sum
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors].
func (a *aggregate) Errors() []protocols.ErrorLaw {
	out := make([]protocols.ErrorLaw, len(a.sums))
	for l, total := range a.Total() {
		out[l] = a.errorOf(uint64(l), total)
	}
	return out
}

// errorOf returns the error distribution of coordinate l. The reports about l are a sample of the block's n reports
// with known probability 1/s. So n/|y_l| times their levels stand for the levels of all clients. With Q and R of
// [protocols.RoundedLevels.Parts], the variance (formula (3) of the package comment) adds up to
//
//	R + s·nγ·v/(1-γ)² + (sγ/(1-γ) + s-1)·Q,   v the blanket's variance,
//
// because it is s·(γ(1-γ)Q + R(1-γ)²)/(1-γ)² + (s-1)(Q-R) plus the blanket's term.
func (a *aggregate) errorOf(l uint64, total float64) protocols.ErrorLaw {
	gamma, s, n := a.m.krr.Gamma.Float64(), a.m.sizeOf(int(l)), float64(a.messages[a.m.blockOf(l)])
	unit := a.m.task.Input.Width() * a.m.task.Input.Width()
	limit := n * a.m.worstVariance(s)
	seen := float64(a.sums[l])/float64(a.m.k) - float64(a.counts[l])/2
	levels := protocols.RoundedLevels{K: a.m.k, Gamma: gamma, Reports: n} // Without reports Q is at its largest.
	if a.counts[l] == 0 {
		return levels.Sampled(total, a.m.task.Input.Width(), limit, s, seen)
	}
	factor := n / float64(a.counts[l])
	levels.Sum, levels.Squares = factor*float64(a.sums[l]), factor*float64(a.squares[l])
	squares, rounding := levels.Parts()
	blanket := s * n * gamma * a.m.krr.BlanketVariance() / ((1 - gamma) * (1 - gamma))
	variance := min(unit*(rounding+blanket+(s*gamma/(1-gamma)+s-1)*squares), limit)
	return levels.Sampled(total, a.m.task.Input.Width(), variance, s, seen)
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A coordinate's total covers the clients whose message of its
// block arrived. Each client whose message is missing may have any value of the range in that coordinate.
func (a *aggregate) LossEffect(l protocols.Loss, entry int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return l.ClientLossEffect(a.messages[a.m.blockOf(uint64(entry))], lo, hi)
}

// Exact implements [protocols.Mechanism.Exact]. The variance is formula (3) of the package comment, in the query's
// units.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, nil, err
	}
	noise, sampling := m.parts(x)
	total = x
	for l := range x {
		total[l] = m.task.Input.Lo.Float64() + m.task.Input.Width()*x[l]
		noise[l] += sampling[l]
	}
	return total, noise, nil
}

// Split returns the two parts of the variance that one client adds to each coordinate: the terms of formula (3) of the
// package comment. noise comes from rounding and randomized response, and is all that the paper counts. sampling comes
// from sampling the coordinates.
func (m *Mechanism) Split(value []float64) (noise, sampling []float64, err error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, nil, err
	}
	noise, sampling = m.parts(x)
	return noise, sampling, nil
}

func (m *Mechanism) parts(x []float64) (noise, sampling []float64) {
	noise, sampling = make([]float64, len(x)), make([]float64, len(x))
	for l := range x {
		noise[l], sampling[l] = m.terms(x[l], m.sizeOf(l))
	}
	return noise, sampling
}

// terms returns the two parts of the variance (see [Mechanism.Split]) for one coordinate x in [0, 1], in a block of the
// given size, in the square of the query's units.
func (m *Mechanism) terms(x, size float64) (noise, sampling float64) {
	gamma := m.krr.Gamma.Float64()
	unit := m.task.Input.Width() * m.task.Input.Width()
	noise = size * protocols.RoundedVariance(gamma, m.k, x) / ((1 - gamma) * (1 - gamma))
	return noise * unit, (size - 1) * (x - 0.5) * (x - 0.5) * unit
}

// worstVariance returns the largest variance that one client can add to a coordinate, in a block of the given size.
func (m *Mechanism) worstVariance(size float64) float64 {
	noise, sampling := m.terms(m.worst(size), size)
	return noise + sampling
}

// Worst implements [protocols.Mechanism.Worst]. In the value, every coordinate is the worst for its block. The variance
// is that of a coordinate in the largest block, where it is largest.
func (m *Mechanism) Worst() protocols.WorstCase {
	out := make([]float64, m.d)
	for l := range out {
		out[l] = m.task.Input.Lo.Float64() + m.task.Input.Width()*m.worst(m.sizeOf(l))
	}
	return protocols.WorstCase{Value: out, Variance: m.worstVariance(m.largest())}
}

// worst returns the x in [0, 1] that adds the most variance in a block of the given size, by formula (3) of the package
// comment.
func (m *Mechanism) worst(size float64) float64 {
	gamma := m.krr.Gamma.Float64()
	return protocols.WorstRounded(gamma, m.k, size/((1-gamma)*(1-gamma)), size-1)
}

// meanVariance returns formula (3) of the package comment in the largest block, averaged over x uniform in [0, 1]:
// f(1-f) has mean 1/6 and (x-½)² has mean 1/12.
func (m *Mechanism) meanVariance() float64 {
	gamma, size, k := m.krr.Gamma.Float64(), m.largest(), float64(m.k)
	v := (1-gamma)/(6*k*k) + gamma*(k+2)/(12*k) + gamma*(1-gamma)/12
	return size*v/((1-gamma)*(1-gamma)) + (size-1)/12
}
