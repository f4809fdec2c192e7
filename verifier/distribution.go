package verifier

import (
	"math"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/wire/task"
)

// Distribution is what a histogram over a range says about the values themselves. Values beyond
// the range count as its ends, to which the task clips them.
type Distribution struct {
	Mean      Location   `json:"mean"`
	Quantiles []Location `json:"quantiles"`
}

// Location is a place on the range of the values.
type Location struct {
	Name        string     `json:"name"`        // Such as "median", "75 % quantile" or "mean".
	Probability float64    `json:"p,omitempty"` // Of a quantile.
	Estimate    float64    `json:"estimate"`
	Interval    [2]float64 `json:"interval"`
}

// quantileLevels are the quantiles reported; 0.75 is the one that Core Web Vitals are judged by.
var quantileLevels = []float64{0.25, 0.5, 0.75, 0.9, 0.95}

// distribution returns the mean and quantiles of a histogram over a range of n reports; nil for
// other queries, labels, and where there is no answer.
//
// Let c_j be the estimated counts of K bins of width w with middles m_j and edges e_0, …, e_K, and
// z the normal quantile of [Confidence]. With v(a) the variance of one client's part of Σ a_j·c_j:
//
//	F_j = Σ_{i<j} c_i / n for j ≤ K/2,  1 - Σ_{i≥j} c_i / n beyond;  s_j² = v(1_{i<j} or 1_{i≥j}) / n     (1)
//	mean = M + Σ (m_j - M) c_j / n, M the middle of the range;  s² = v(m - M) / n                     (2)
//	interval of the mean: ± (z·s + w/2)                                                             (3)
//
// The true counts add up to n, so both forms of (1), and (2), are unbiased; a value is at most w/2 from
// the middle of its bin, which (3) adds. A quantile's interval inverts the band F_j ± z·s_j:
//
//	[e_{a-1}, e_{b+1}],  a the first j with F_j + z·s_j ≥ p,  b the last j with F_j - z·s_j ≤ p           (4)
//
// where F_0 = 0 and F_K = 1 are known. Let e_i ≤ x_p < e_{i+1}. The interval lies above x_p only if
// F_{i+1} + z·s_{i+1} < p, and below only if F_i - z·s_i > p: two events at fixed edges, each of
// probability (1-Confidence)/2 at most, whatever the other edges do. So the band is pointwise, the
// coverage at least Confidence for each quantile by itself, and no interval is narrower than a bin.
// The estimate interpolates in the bin where the running maximum of F crosses p.
//
// Loss. Of the clients a share s may be missing: each is in one bin, so that F of all of them is (1-s)·F + s·x,
// x ∈ [0, 1], and the mean is moved to an x between the outer middles in the same way. A missing message adds
// at most r to one c_j/n, and so at most r to F, and r times the distance from M to the mean.
func distribution(t *task.Task, m protocols.Mechanism, a Answer, agg protocols.Aggregate,
	loss protocols.Loss) *Distribution {
	if t.Query.Info().Shape != task.PerBin || t.Input.Labels || a.Estimate == nil {
		return nil
	}
	counts, gap := agg.Total(), newGap(agg.Missing(loss, 0), loss.Clients)
	bins, users := len(counts), float64(agg.Reports())
	lo, hi := t.Input.Lo.Float64(), t.Input.Hi.Float64()
	width := (hi - lo) / float64(bins)
	mean, squares := (lo+hi)/2, 0.0
	for j, count := range counts { // (2)
		offset := (float64(j)+0.5)*width - (hi-lo)/2
		mean += offset * count / users
		squares += offset * offset
	}
	edge := (hi - lo - width) / 2
	reach := quantile * math.Sqrt(linearVariance(t, m, weights{bins, 0, squares, -edge, edge})/users)
	from, to := gap.widen(mean-reach, mean+reach, lo+width/2, hi-width/2, edge)
	from, to = max(lo, from-width/2), min(hi, to+width/2) // (3)
	out := &Distribution{Mean: Location{Name: "mean", Estimate: mean, Interval: [2]float64{from, to}}}
	b := newBand(t, m, counts, users, gap)
	for _, p := range quantileLevels {
		first, last := b.ends(p)
		out.Quantiles = append(out.Quantiles,
			Location{quantileName(p), p, lo + width*b.crossing(p),
				[2]float64{lo + width*float64(first), lo + width*float64(last)}})
	}
	return out
}

// gap is what is missing, as a share s of the clients, or as the most r that messages add to a share.
type gap struct{ clients, messages float64 }

func newGap(m protocols.Missing, clients uint64) gap {
	share := float64(m.Parts) / float64(clients)
	if m.Counted > 0 {
		return gap{clients: share}
	}
	return gap{messages: share * max(-m.Lo, m.Hi)}
}

// widen returns the interval of a mean over clients, of something from least to most, for all of them. One
// message moves it by up to reach times its share.
func (g gap) widen(lo, hi, least, most, reach float64) (from, to float64) {
	return (1-g.clients)*lo + g.clients*least - g.messages*reach,
		(1-g.clients)*hi + g.clients*most + g.messages*reach
}

// weights are what linearVariance needs to know of a_1, …, a_K.
type weights struct {
	bins            int
	sum, squares    float64
	lowest, highest float64
}

// linearVariance returns the largest variance that one client adds to Σ a_j·c_j.
//
// Randomized response over K bins: c_j = (N_j - nγ/K)/(1-γ), so a client in bin x adds
//
//	Var(a_Y)/(1-γ)²,  Y = x with probability 1-γ, else uniform                                      (5)
//
// which is convex in a_x: the worst x is at the lowest or highest weight. Other protocols add
// independent noise to every bin: Σ a_j²·WorstVariance.
func linearVariance(t *task.Task, m protocols.Mechanism, a weights) float64 {
	parameter, ok := t.Param("gamma")
	if t.Protocol != histogram.Name || !ok {
		return a.squares * m.WorstVariance()
	}
	gamma, k := parameter.Float64(), float64(a.bins)
	at := func(w float64) float64 { // (5)
		first := (1-gamma)*w + gamma*a.sum/k
		return ((1-gamma)*w*w + gamma*a.squares/k - first*first) / ((1 - gamma) * (1 - gamma))
	}
	return max(at(a.lowest), at(a.highest))
}

// band is the estimated distribution function at the bins' edges, and its pointwise interval.
type band struct{ value, lo, hi []float64 }

func newBand(t *task.Task, m protocols.Mechanism, counts []float64, users float64, g gap) band {
	k := len(counts)
	b := band{value: make([]float64, k+1), lo: make([]float64, k+1), hi: make([]float64, k+1)}
	set := func(j, inside int, value float64) {
		c := float64(inside)
		half := quantile * math.Sqrt(linearVariance(t, m, weights{k, c, c, 0, 1})/users)
		b.value[j] = value
		b.lo[j], b.hi[j] = g.widen(value-half, value+half, 0, 1, 1)
	}
	b.value[k], b.lo[k], b.hi[k] = 1, 1, 1
	sum := 0.0
	for j := 1; 2*j <= k; j++ { // (1)
		sum += counts[j-1] / users
		set(j, j, sum)
	}
	sum = 0
	for j := k - 1; 2*j > k; j-- {
		sum += counts[j] / users
		set(j, k-j, 1-sum)
	}
	return b
}

// ends returns (4), as numbers of edges.
func (b band) ends(p float64) (first, last int) {
	k := len(b.value) - 1
	first, last = 1, k-1
	for first < k && b.hi[first] < p {
		first++
	}
	for last > 0 && b.lo[last] > p {
		last--
	}
	return first - 1, last + 1
}

// crossing returns where the running maximum reaches p, in bins from the lowest edge.
func (b band) crossing(p float64) float64 {
	before := 0.0
	for j := 1; j < len(b.value); j++ {
		if here := max(before, b.value[j]); here >= p {
			return float64(j-1) + (p-before)/(here-before)
		} else {
			before = here
		}
	}
	return float64(len(b.value) - 1)
}
