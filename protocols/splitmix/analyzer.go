package splitmix

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// aggregate holds the sum mod q of the current batch's messages, and the decoded sums of the previous batches. A sum
// mod q means nothing until all messages of a batch are added; AddUsers ends a batch. The package comment has formula
// (2) for the estimated sum and formula (3) for its variance.
type aggregate struct {
	m        *Mechanism
	residue  uint64  // Sum of the current batch's messages mod q.
	messages uint64  // Number of the current batch's messages.
	sum      float64 // Decoded sums of the previous batches, in units of 1/p. Exact below 2⁵³.
	reports  uint64  // Clients of the previous batches.
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return &aggregate{m: m} }

func (a *aggregate) Add(lane int, message []byte) error {
	if lane != 0 {
		return invalid.Field("lane", strconv.Itoa(lane), "lane 0")
	}
	share, err := protocols.Indices(a.m.q).Decode(message)
	if err != nil {
		return err
	}
	a.residue = (a.residue + share) % a.m.q
	a.messages++
	return nil
}

// AddUsers ends a batch of n clients and adds its decoded sum. It leaves out an incomplete batch.
func (a *aggregate) AddUsers(n uint64) {
	if a.checkComplete(n) == nil {
		a.sum += a.m.decode(a.residue, n)
		a.reports += n
	}
	a.residue, a.messages = 0, 0
}

// decode returns the whole number in [-(q-np)/2, (np+q)/2] whose residue mod q is z: the sum of n clients' rounded
// values and noise, in units of 1/p.
func (m *Mechanism) decode(z, n uint64) float64 {
	if 2*z > n*m.p+m.q {
		return float64(z) - float64(m.q)
	}
	return float64(z)
}

// checkComplete implements [protocols.Capabilities].
func (a *aggregate) checkComplete(users uint64) error {
	if want := users * a.m.m; a.messages != want {
		return invalid.Field("batch", strconv.FormatUint(a.messages, 10)+" messages",
			strconv.FormatUint(want, 10)+": with a share missing or added, the sum of a batch is meaningless")
	}
	return nil
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.m != a.m.m || o.m.p != a.m.p || o.m.q != a.m.q {
		return protocols.ErrMerge
	}
	a.residue = (a.residue + o.residue) % a.m.q
	a.messages += o.messages
	a.sum += o.sum
	a.reports += o.reports
	return nil
}

func (a *aggregate) Reports() uint64 { return a.reports }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	visit(&a.residue)
	visit(&a.messages)
	protocols.VisitFloat(&a.sum, visit)
	visit(&a.reports)
}

// Total returns the estimated sum: the decoded sums, converted from [0, 1] to the task's range.
func (a *aggregate) Total() []float64 {
	return []float64{a.m.task.Input.Lo.Float64()*float64(a.reports) + a.m.task.Input.Width()*a.sum/float64(a.m.p)}
}

// Errors implements [protocols.Aggregate.Errors]. The error is n/n_min times the noise of n_min clients, which is
// discrete Laplace, plus rounding errors at their largest.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	noise := &protocols.Noise{}
	noise.AddPolya(float64(a.reports)/float64(a.m.task.Batch.Min), a.m.s.Float64())
	if a.m.task.Query != task.Count {
		noise.AddHalves(a.reports)
	}
	unit := a.m.task.Input.Width() / float64(a.m.p)
	return []protocols.ErrorLaw{protocols.NoisyEstimate{Estimate: a.Total()[0], Unit: unit, Noise: noise}}
}

// LossEffect implements [protocols.Aggregate.LossEffect]. If one share is missing, the whole batch is left out
// ([aggregate.checkComplete]). Then only the query's range bounds what its clients would have added.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	lo, hi := protocols.Contribution(a.m.task)
	return l.ClientLossEffect(a.reports, lo, hi)
}

// Exact implements [protocols.Mechanism.Exact]. The variance is one client's part of formula (3) of the package
// comment.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, nil, err
	}
	_, f := math.Modf(x * float64(m.p))
	return []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*x}, []float64{m.variance(f)}, nil
}

// Worst implements [protocols.Mechanism.Worst]. The worst value lies halfway between two levels.
func (m *Mechanism) Worst() protocols.WorstCase {
	f := m.worstFraction()
	return protocols.WorstCase{
		Value:    []float64{m.task.Input.Lo.Float64() + m.task.Input.Width()*f/float64(m.p)},
		Variance: m.variance(f),
	}
}

// worstFraction returns the fraction f of a level at which rounding adds the most variance; a count is not rounded.
func (m *Mechanism) worstFraction() float64 {
	if m.task.Query == task.Count {
		return 0
	}
	return 0.5
}

// variance returns what one client adds to the variance of the sum, in the square of the query's units: formula (3) of
// the package comment. Each client adds 1/n_min of the variance of discrete Laplace noise.
func (m *Mechanism) variance(f float64) float64 {
	scale := m.task.Input.Width() / float64(m.p)
	return (f*(1-f) + NoiseVariance(m.s.Float64())/float64(m.task.Batch.Min)) * scale * scale
}

// NoiseVariance returns the variance 2α/(1-α)² of the discrete Laplace distribution, α = e^{-s}.
func NoiseVariance(s float64) float64 {
	half := math.Sinh(s / 2) // 2α/(1-α)² = 1/(2·sinh²(s/2))
	return 1 / (2 * half * half)
}
