package planner

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// centralLevels is p of [central] for sums and means.
const centralLevels = 1 << 16

// central is the central discrete Laplace mechanism [GRS12], for simulations only. It gives the error of a curator who
// sees all values, at the same ε. Shuffled protocols are compared with this error. No task can name it, because its
// clients send their values unchanged.
//
// The curator rounds every value stochastically to x̃ in {0, …, p}. It then adds one discrete Laplace variable to the
// sum, or to every count of a histogram:
//
//	Σx ≈ (Σx̃ + DLap(α)) / p,   Pr[DLap(α) = k] = (1-α)/(1+α)·α^|k|,   α = e^{-ε/p}   (1)
//	Var = 2α/((1-α)²p²) + Σ f(1-f)/p²,  f the fractional part of xp                   (2)
//
// p is 1 for a count, and 2¹⁶ for a sum or mean, where rounding is negligible. For a histogram, p is 1 and α =
// e^{-ε/2}, because substitution moves one client from one count to another.
//
// Guarantee: ε-DP by substitution against everyone except the curator, who sees everything. Accuracy: unbiased, with
// variance (2). Limits: clients must trust the curator. A malicious client moves the sum by at most the range, which is
// the least of any protocol.
//
// [GRS12]: https://arxiv.org/abs/0811.2841
type central struct {
	task    *task.Task
	entries uint64 // Number of entries of the answer.
	p       uint64
	rate    randomizer.Rational // -ln α, see (1).
	clients float64
}

// NewCentral returns the central mechanism for the query and ε of a task: count, sum, mean or histogram.
// [central.Exact] divides the noise among the given number of clients.
func NewCentral(t *task.Task, clients int) (protocols.Mechanism, error) {
	eps, ok := randomizer.RationalFromFloat(t.Claim.Epsilon.Value())
	if !ok || eps.Num <= 0 {
		return nil, invalid.Field("claim.epsilon", t.Claim.Epsilon.String(), "at least 1e-9")
	}
	m := &central{task: t, entries: 1, p: centralLevels, clients: float64(clients)}
	switch t.Query {
	case task.Count:
		m.p = 1
	case task.Sum, task.Mean:
	case task.Histogram:
		m.entries, m.p, eps = t.Input.Bins, 1, randomizer.NewRational(eps.Num, 2*eps.Den)
	default:
		return nil, invalid.Field("query", strconv.Quote(string(t.Query)),
			"count, sum, mean or histogram for the central mechanism")
	}
	m.rate = randomizer.NewRational(eps.Num, eps.Den*m.p)
	return m, nil
}

// cell returns the entry of the answer to which a value adds, and how much it adds, in [0, 1].
func (m *central) cell(value []float64) (entry uint64, x float64, err error) {
	if m.entries > 1 {
		entry, err = protocols.Category(m.task.Input, value)
		return entry, 1, err
	}
	x, err = protocols.Number(m.task, value)
	return 0, x, err
}

// Randomize implements [protocols.Mechanism.Randomize]. It returns the rounded value, without noise, and its entry.
func (m *central) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	entry, x, err := m.cell(value)
	if err != nil {
		return nil, err
	}
	level := src.Round(randomizer.Fixed(x), m.p)
	return protocols.Messages{{protocols.Indices(m.entries*(m.p+1)).Encode(nil, entry*(m.p+1)+level)}}, nil
}

// fast implements [protocols.Capabilities.Fast]. It draws the counts of a histogram, or the sum of the rounded values.
func (m *central) fast(values [][]float64) (protocols.Draw, error) {
	counts := make([]float64, m.entries)
	groups, err := protocols.RoundingGroups(values, m.p, func(v []float64) (float64, error) {
		entry, x, err := m.cell(v)
		if err == nil {
			counts[entry]++
		}
		return x, err
	})
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := &curator{m: m, src: src, sums: append([]float64(nil), counts...)}
		if m.entries == 1 {
			a.sums[0] = 0
			for _, g := range groups {
				a.sums[0] += float64(g.Sum(src))
			}
		}
		return a, protocols.FixedCount(uint64(len(values)))
	}, nil
}

// CheckClaim implements [protocols.Mechanism.CheckClaim]. It always returns an error, because the mechanism proves
// nothing against the curator.
func (m *central) CheckClaim() error {
	return invalid.Field("protocol", "laplace",
		"a protocol of the shuffle model: the central mechanism is for simulations only")
}

// Law implements [protocols.Mechanism.Law]: an error, because there is no law.
func (m *central) Law() (*compose.Law, error) { return nil, m.CheckClaim() }

// Epsilon0 implements [protocols.Mechanism.Epsilon0]: +Inf, because clients send exact values.
func (m *central) Epsilon0() float64 { return math.Inf(1) }

// curator is the aggregate of [central]. AddUsers adds the noise of one batch.
type curator struct {
	m       *central
	src     *randomizer.Source
	sums    []float64
	batches uint64
	reports uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *central) Aggregate() protocols.Aggregate {
	return &curator{m: m, src: randomizer.NewSource(), sums: make([]float64, m.entries)}
}

func (a *curator) Add(_ int, message []byte) error {
	v, err := protocols.Indices(a.m.entries * (a.m.p + 1)).Decode(message)
	if err != nil {
		return err
	}
	a.sums[v/(a.m.p+1)] += float64(v % (a.m.p + 1))
	return nil
}

func (a *curator) AddUsers(n uint64) {
	for j := range a.sums {
		a.sums[j] += float64(a.src.DiscreteLaplace(a.m.rate))
	}
	a.batches++
	a.reports += n
}

func (a *curator) Merge(other protocols.Aggregate) error {
	o, ok := other.(*curator)
	if !ok || o.m != a.m {
		return protocols.ErrMerge
	}
	for j, s := range o.sums {
		a.sums[j] += s
	}
	a.batches += o.batches
	a.reports += o.reports
	return nil
}

// Counters implements [protocols.Aggregate.Counters].
func (a *curator) Counters(visit func(*uint64)) {
	for j := range a.sums {
		protocols.VisitFloat(&a.sums[j], visit)
	}
	visit(&a.batches)
	visit(&a.reports)
}

func (a *curator) Reports() uint64 { return a.reports }

func (a *curator) Total() []float64 {
	out := make([]float64, len(a.sums))
	for j, s := range a.sums {
		out[j] = s / float64(a.m.p) // formula (1) of central
		if a.m.entries == 1 {
			out[j] = a.m.task.Input.Lo.Float64()*float64(a.reports) + a.m.width()*out[j]
		}
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]: the noise of every batch, plus the worst case of rounding.
func (a *curator) Errors() []protocols.ErrorLaw {
	noise := &protocols.Noise{}
	noise.AddPolya(float64(a.batches), a.m.rate.Float64())
	if a.m.p > 1 {
		noise.AddHalves(a.reports)
	}
	out := make([]protocols.ErrorLaw, len(a.sums))
	for j, total := range a.Total() {
		out[j] = protocols.NoisyEstimate{Estimate: total, Unit: a.m.width() / float64(a.m.p), Noise: noise}
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing message lowers the total by at most the length of
// the range.
func (a *curator) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return protocols.LossEffect{Parts: l.Messages, Hi: hi - lo}
}

// width returns the length of the range of a number, or 1 for a histogram.
func (m *central) width() float64 {
	if m.entries > 1 {
		return 1
	}
	return m.task.Input.Width()
}

// Exact implements [protocols.Mechanism.Exact]. The variance is formula (2) of [central]. Each client gets an equal
// part of the noise.
func (m *central) Exact(value []float64) (total, variance []float64, err error) {
	entry, x, err := m.cell(value)
	if err != nil {
		return nil, nil, err
	}
	_, f := math.Modf(x * float64(m.p))
	total, variance = make([]float64, m.entries), make([]float64, m.entries)
	for j := range variance {
		variance[j] = m.variance(0)
	}
	total[entry], variance[entry] = x, m.variance(f)
	if m.entries == 1 {
		total[entry] = m.task.Input.Lo.Float64() + m.width()*x
	}
	return total, variance, nil
}

// Worst implements [protocols.Mechanism.Worst].
func (m *central) Worst() protocols.WorstCase {
	value, fraction := m.task.Input.Lo.Float64(), 0.0
	if m.task.Input.Labels {
		value = 0
	}
	if m.p != 1 {
		value, fraction = value+m.width()/(2*centralLevels), 0.5
	}
	return protocols.WorstCase{Value: []float64{value}, Variance: m.variance(fraction)}
}

// Capabilities implements what [protocols.CapabilitiesOf] looks for.
func (m *central) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{Fast: m.fast}
}

// variance returns one client's part of formula (2) of [central], in the query's units squared.
func (m *central) variance(f float64) float64 {
	half, scale := math.Sinh(m.rate.Float64()/2), m.width()/float64(m.p)
	return (f*(1-f) + 1/(2*half*half*m.clients)) * scale * scale // 2α/(1-α)² = 1/(2·sinh²(rate/2))
}
