package correlated

import (
	"math"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// aggregate holds the sum of the messages of every coordinate, and the number n of clients. The package comment has
// formula (2) for the estimated sum and formula (3) for its variance.
type aggregate struct {
	m     *Mechanism
	sums  []int64
	users uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{m: m, sums: make([]int64, m.dim)}
}

func (a *aggregate) Add(lane int, message []byte) error {
	at, value, err := a.m.decode(lane, message)
	if err != nil {
		return err
	}
	a.sums[at] += value
	return nil
}

func (a *aggregate) AddUsers(n uint64) { a.users += n }

func (a *aggregate) Reports() uint64 { return a.users }

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.top != a.m.top || o.m.dim != a.m.dim || o.m.task.Slots != a.m.task.Slots {
		return protocols.ErrMerge
	}
	for j, s := range o.sums {
		a.sums[j] += s
	}
	a.users += o.users
	return nil
}

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	for j := range a.sums {
		visitSigned(&a.sums[j], visit)
	}
	visit(&a.users)
}

// visitSigned calls visit with a number that may be negative. It helps to implement [protocols.Aggregate.Counters]. It
// encodes 0, -1, 1, -2, … as 0, 1, 2, 3, …, so that numbers near 0 stay small.
func visitSigned(number *int64, visit func(*uint64)) {
	folded := uint64(*number<<1) ^ uint64(*number>>63)
	visit(&folded)
	*number = int64(folded>>1) ^ -int64(folded&1)
}

// Total returns the estimated sums, formula (2) of the package comment, converted from {0, …, Δ} to the task's range.
func (a *aggregate) Total() []float64 {
	out := make([]float64, len(a.sums))
	for j, s := range a.sums {
		out[j] = float64(s) * a.m.scale()
	}
	if a.m.task.Query == task.Sum || a.m.task.Query == task.Mean {
		out[0] += a.m.task.Input.Lo.Float64() * float64(a.users)
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]. The error is n/n_min times the central noise of n_min clients, plus
// rounding at its worst. Atoms add up to 0. It ignores that clients redraw noise that does not fit the slots: the
// probability that any client does is below δ/100.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	noise := a.noise(1)
	if !unit(a.m.task) {
		noise.AddHalves(a.users)
	}
	out := make([]protocols.ErrorLaw, len(a.sums))
	for j, total := range a.Total() {
		out[j] = protocols.NoisyEstimate{Estimate: total, Unit: a.m.scale(), Noise: noise}
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing slot held a cover or a message from -⌈Δ/2⌉ to Δ for
// one coordinate, either a value or noise. It would add that number to the estimate (formula (2) of the package
// comment).
//
// Under padding full most lost slots are covers, but the interval cannot be narrower. Compare two cases of n clients
// that lose ℓ slots. In one, ℓ clients hold the least value, which has no message, and lose ℓ covers. In the other,
// they hold the largest value and lose their own ℓ messages. The noise has the same distribution in both cases, and so
// has everything that the verifier sees. So an interval that holds the truth with probability 1-α, whichever slots are
// lost, is ℓ values wide with a probability of at least 1-2α.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	unit := a.m.scale()
	return protocols.LossEffect{Parts: l.Messages, Lo: -float64(a.m.offset()) * unit, Hi: float64(a.m.top) * unit}
}

// Below implements [protocols.Bins.Below] for a histogram. The noise of j bins adds up. Beyond half of the bins it
// returns n minus the other bins' count, which has less noise.
func (a *aggregate) Below() []protocols.ErrorLaw {
	k := len(a.sums)
	out, sum, all := make([]protocols.ErrorLaw, k-1), int64(0), int64(0)
	for _, s := range a.sums {
		all += s
	}
	for j := range out {
		sum += a.sums[j]
		estimate, bins := float64(sum), j+1
		if 2*bins > k {
			estimate, bins = float64(a.users)-float64(all-sum), k-bins
		}
		out[j] = protocols.NoisyEstimate{Estimate: estimate, Unit: 1, Noise: a.noise(bins)}
	}
	return out
}

// noise returns the noise in the sum of this many coordinates.
func (a *aggregate) noise(coordinates int) *protocols.Noise {
	noise := &protocols.Noise{}
	noise.AddPolya(float64(coordinates)*a.shares(), a.m.central.Float64())
	return noise
}

// shares returns n/n_min: how many times the noise of n_min clients is present.
func (a *aggregate) shares() float64 { return float64(a.users) / float64(a.m.task.Batch.Min) }

// Weighted implements [protocols.Bins.Weighted] for a histogram. The error is the weighted sum of K independent
// variables of variance rv. r is n/n_min, and v is the variance of the discrete Laplace distribution. Each variable has
// excess kurtosis (3 + 1/v)/r.
func (a *aggregate) Weighted(weights []float64) protocols.ErrorLaw {
	v, r := centralVariance(a.m.central.Float64()), a.shares()
	law, squares, fourths := protocols.Normal{}, 0.0, 0.0
	for j, w := range weights {
		law.Estimate += w * float64(a.sums[j])
		squares, fourths = squares+w*w, fourths+w*w*w*w
	}
	law.Plugged = r * v * squares
	if squares > 0 {
		law.Excess = (3 + 1/v) / r * fourths / (squares * squares)
	}
	return law
}

// scale returns what a message of value 1 adds to the estimate, in the query's units.
func (m *Mechanism) scale() float64 {
	if m.task.Query == task.Histogram {
		return 1
	}
	return m.task.Input.Width() / float64(m.top)
}

// Exact implements [protocols.Mechanism.Exact]. The variance is one client's part of formula (3) of the package
// comment.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	at, x, err := m.input(value)
	if err != nil {
		return nil, nil, err
	}
	total, variance = make([]float64, m.dim), make([]float64, m.dim)
	for j := range variance {
		variance[j] = m.noiseVariance() * m.scale() * m.scale()
	}
	_, f := math.Modf(x * float64(m.top))
	variance[at] += f * (1 - f) * m.scale() * m.scale()
	total[at] = x * float64(m.top) * m.scale()
	if m.task.Query == task.Sum || m.task.Query == task.Mean {
		total[at] += m.task.Input.Lo.Float64()
	}
	return total, variance, nil
}

// noiseVariance returns what one client's central noise adds to the variance: 2p/((1-p)²·n_min), p = e^{-ε*/Δ}, in
// squared steps of 1/Δ of the range.
func (m *Mechanism) noiseVariance() float64 {
	return centralVariance(m.central.Float64()) / float64(m.task.Batch.Min)
}

// centralVariance returns the variance of the discrete Laplace distribution: 2p/(1-p)², p = e^{-s}.
func centralVariance(s float64) float64 {
	half := math.Sinh(s / 2)
	return 1 / (2 * half * half)
}

// Worst implements [protocols.Mechanism.Worst]. The worst value is half way between two levels.
func (m *Mechanism) Worst() protocols.WorstCase {
	v := m.noiseVariance()
	if !unit(m.task) {
		v += 0.25
	}
	return protocols.WorstCase{Value: m.halfWay(), Variance: v * m.scale() * m.scale()}
}

// halfWay returns a value half way between two levels, or the lowest value if there are no levels between.
func (m *Mechanism) halfWay() []float64 {
	in := m.task.Input
	lo := in.Lo.Float64()
	half := (in.Hi.Float64() - lo) / float64(2*m.top)
	switch m.task.Query {
	case task.Count:
		return []float64{0}
	case task.Histogram:
		if in.Labels {
			return []float64{0}
		}
		return []float64{lo}
	case task.Vector:
		v := make([]float64, m.dim)
		v[0] = half
		return v
	}
	return []float64{lo + half}
}
