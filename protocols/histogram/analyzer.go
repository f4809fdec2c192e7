package histogram

import (
	"math"

	"github.com/doona-dp/doona/protocols"
)

// aggregate counts, for every value j, the reports N_j equal to j, and all reports n. The package comment has formula
// (1) for the estimated counts and formula (2) for their variance.
type aggregate struct {
	krr     protocols.KRR
	counts  []uint64
	reports uint64
}

// Aggregate implements [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate {
	return &aggregate{krr: m.krr, counts: make([]uint64, m.krr.K)}
}

func (a *aggregate) Add(lane int, message []byte) error {
	y, err := a.krr.Symbol(lane, message)
	if err != nil {
		return err
	}
	a.counts[y]++
	a.reports++
	return nil
}

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.krr != a.krr {
		return protocols.ErrMerge
	}
	for j, n := range o.counts {
		a.counts[j] += n
	}
	a.reports += o.reports
	return nil
}

func (a *aggregate) AddUsers(uint64) {}

func (a *aggregate) Reports() uint64 { return a.reports }

// Counters implements [protocols.Aggregate.Counters].
func (a *aggregate) Counters(visit func(*uint64)) {
	protocols.VisitAll(a.counts, visit)
	visit(&a.reports)
}

// Total returns the estimated number of clients that hold each value: formula (1) of the package comment.
func (a *aggregate) Total() []float64 {
	gamma, k := a.krr.Gamma.Float64(), float64(a.krr.K)
	out := make([]float64, len(a.counts))
	for j, n := range a.counts {
		out[j] = (float64(n) - float64(a.reports)*gamma/k) / (1 - gamma)
	}
	return out
}

// Errors implements [protocols.Aggregate.Errors]. N_j is the sum of two binomial variables: reports from clients that
// hold j, and reports from others.
func (a *aggregate) Errors() []protocols.ErrorLaw {
	out := make([]protocols.ErrorLaw, len(a.counts))
	for j, n := range a.counts {
		out[j] = a.krr.Cell(n, a.reports)
	}
	return out
}

// LossEffect implements [protocols.Aggregate.LossEffect]. A missing client adds 1 to the count of a value if it holds
// that value, else 0.
func (a *aggregate) LossEffect(l protocols.Loss, _ int) protocols.LossEffect {
	return l.ClientLossEffect(a.reports, 0, 1)
}

// Below implements [protocols.Bins.Below]. A client whose value is in the first j bins reports one of these bins with
// probability 1-γ+γj/K. Any other client does so with probability γj/K. So their number is the sum of two binomial
// variables too.
func (a *aggregate) Below() []protocols.ErrorLaw {
	gamma, k := a.krr.Gamma.Float64(), float64(a.krr.K)
	out, seen := make([]protocols.ErrorLaw, a.krr.K-1), uint64(0)
	for j := range out {
		seen += a.counts[j]
		share := float64(j+1) / k
		out[j] = protocols.Cell{Seen: seen, Users: a.reports, Own: 1 - gamma*(1-share), Other: gamma * share}
	}
	return out
}

// Weighted implements [protocols.Bins.Weighted]. For weights in equal steps, such as those of a mean, the sum has the
// error distribution of a sum of levels. That distribution allows for rounding, which a histogram has none of, so its
// intervals are slightly too wide where bins are few. For other weights the error is taken for normal.
func (a *aggregate) Weighted(weights []float64) protocols.ErrorLaw {
	counts, estimate := a.Total(), 0.0
	for x, c := range counts {
		estimate += weights[x] * c
	}
	variance := a.krr.WeightedVariance(weights, counts, float64(a.reports))
	if !rises(weights) {
		return protocols.Normal{Estimate: estimate, Plugged: variance}
	}
	levels := protocols.RoundedLevels{K: a.krr.K - 1, Gamma: a.krr.Gamma.Float64(), Reports: float64(a.reports)}
	for y, n := range a.counts {
		levels.Sum += float64(y) * float64(n)
		levels.Squares += float64(y) * float64(y) * float64(n)
	}
	return levels.Law(estimate, weights[len(weights)-1]-weights[0], variance)
}

// rises reports whether weights rise in equal steps.
func rises(weights []float64) bool {
	last := len(weights) - 1
	step := (weights[last] - weights[0]) / float64(last)
	for j, w := range weights {
		if !(step > 0) || math.Abs(w-weights[0]-float64(j)*step) > 1e-9*step {
			return false
		}
	}
	return true
}

// Exact implements [protocols.Mechanism.Exact]. The variance is one client's part of formula (2) of the package
// comment.
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Category(m.task.Input, value)
	if err != nil {
		return nil, nil, err
	}
	own, other := m.variances()
	total, variance = make([]float64, m.krr.K), make([]float64, m.krr.K)
	for j := range variance {
		variance[j] = other
	}
	total[x], variance[x] = 1, own
	return total, variance, nil
}

// Worst implements [protocols.Mechanism.Worst]. A client adds most to the count of the value that it holds. This is the
// same for all values, so Worst returns the lowest value.
func (m *Mechanism) Worst() protocols.WorstCase {
	own, other := m.variances()
	lowest := 0.0
	if !m.task.Input.Labels {
		lowest = m.task.Input.Lo.Float64()
	}
	return protocols.WorstCase{Value: []float64{lowest}, Variance: max(own, other)}
}

// variances returns what one client adds to the variance of a count (formula (2) of the package comment): own for the
// value that it holds, other for any other value.
func (m *Mechanism) variances() (own, other float64) {
	gamma, k := m.krr.Gamma.Float64(), float64(m.krr.K)
	q := gamma / k
	notP := gamma * (k - 1) / k // 1-p
	debias := (1 - gamma) * (1 - gamma)
	return (1 - notP) * notP / debias, q * (1 - q) / debias
}
