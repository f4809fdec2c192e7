package verifier

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Distribution describes the clients' values in a histogram over a range. Values beyond the range count as its ends,
// because the task clips them.
type Distribution struct {
	Range     [2]float64 `json:"range"`
	Mean      Location   `json:"mean"`
	Quantiles []Location `json:"quantiles"`
}

// Location is a point in the range of values, such as the median.
type Location struct {
	Name        string   `json:"name"`        // For example "median", "75 % quantile" or "mean".
	Probability float64  `json:"p,omitempty"` // Which quantile, from 0 to 1; absent for the mean.
	Estimate    float64  `json:"estimate"`
	Interval    interval `json:"interval"` // None if it would be the whole range.
	// Only for an epoch. Wider than Interval: holds for all the task's epochs at once, separately for each quantile and
	// the mean.
	BandOverEpochs *interval `json:"band_over_epochs,omitempty"`
}

// quantileLevels are the quantiles in a report. Core Web Vitals are rated by the 0.75 quantile.
var quantileLevels = []float64{0.25, 0.5, 0.75, 0.9, 0.95}

// distribution returns the mean and quantiles of a histogram of n reports over a range. It returns nil for other
// queries, for labels, and if there is no answer.
//
// Let c_j be the estimated counts of K bins of width w, with middles m_j and edges e_0, …, e_K:
//
//	F_j = Σ_{i<j} c_i / n for j ≤ K/2, and 1 - Σ_{i≥j} c_i / n for j > K/2                           (1)
//	mean = M + Σ (m_j - M) c_j / n, where M is the middle of the range                              (2)
//
// F_j estimates the share of clients with a value below e_j. The true counts add up to n, so both forms of (1), and
// (2), are unbiased. A value differs from the middle of its bin by at most w/2, and the data cannot show by how much.
// So the mean's error is noise of standard deviation s plus a bias of at most w/2. With normal noise, the interval
// mean ± q has 95 % coverage if the bias is w/2 to one side:
//
//	Φ((q - w/2)/s) - Φ((-q - w/2)/s) = Confidence                                                   (3)
//
// The noise then exceeds q - w/2 with the probability a = Φ((w/2 - q)/s), between half of 1-Confidence and all of it.
// So the code takes the noise's interval at the confidence 1-2a and adds w/2 at both ends. If the noise is not normal,
// its own distribution decides where these ends are.
//
// The interval of the p-quantile x_p inverts the intervals [l_j, h_j] of F_j, which [protocols.Bins.Below] gives:
//
//	[e_{a-1}, e_{b+1}],  a the first j with h_j ≥ p,  b the last j with l_j ≤ p                           (4)
//
// where F_0 = 0 and F_K = 1 are known. Let e_i ≤ x_p < e_{i+1}. The interval lies above x_p only if h_{i+1} < p, and
// below x_p only if l_i > p. These are two events at fixed edges. Each has probability at most (1-Confidence)/2,
// whatever happens at the other edges. So coverage is at least Confidence for each quantile by itself, and no interval
// is narrower than a bin. The estimate of x_p interpolates in the bin where the running maximum of F crosses p.
//
// Losses: a share s of the clients may be missing. Each missing client is in one bin, so F over all clients is (1-s)·F
// + s·x with x ∈ [0, 1]. The mean changes in the same way, with x in the range. A missing message adds at most r to one
// c_j/n. So it adds at most r to F, and to the mean at most r times the distance from M to the farthest m_j.
//
// epochs is the number of epochs over which BandOverEpochs holds. It is 0 for an answer over all epochs.
func distribution(t *task.Task, m protocols.Mechanism, a Answer, agg protocols.Aggregate, loss protocols.Loss,
	epochs uint64) *Distribution {
	if t.Query.Info().Shape != task.PerBin || t.Input.Labels || a.Estimate == nil {
		return nil
	}
	binned := histogram{agg, binsOf(m, agg)}
	counts, missing := agg.Total(), newGap(agg.LossEffect(loss, 0), loss.Clients)
	lo, hi := t.Input.Lo.Float64(), t.Input.Hi.Float64()
	width := (hi - lo) / float64(len(counts))
	out := &Distribution{Range: [2]float64{lo, hi}, Mean: meanOf(binned, lo, hi, missing, Confidence)}
	b := newBand(binned, counts, missing)
	between := func(p float64) interval {
		first, last := b.ends(p)
		if first == 0 && last == len(counts) {
			return noInterval()
		}
		return interval{lo + width*float64(first), lo + width*float64(last)}
	}
	for _, p := range quantileLevels {
		out.Quantiles = append(out.Quantiles,
			Location{Name: quantileName(p), Probability: p, Estimate: lo + width*b.crossing(p), Interval: between(p)})
	}
	if epochs == 0 {
		return out
	}
	b = b.at(confidencePerEpoch(epochs))
	for i := range out.Quantiles {
		band := between(out.Quantiles[i].Probability)
		out.Quantiles[i].BandOverEpochs = &band
	}
	wider := meanOf(binned, lo, hi, missing, b.confidence)
	out.Mean.BandOverEpochs = &wider.Interval
	return out
}

// DistributionOf returns the mean and quantiles of a complete batch, or nil if the query has no distribution.
func DistributionOf(t *task.Task, m protocols.Mechanism, batch protocols.Aggregate) *Distribution {
	return distribution(t, m, Answer{Estimate: batch.Total()}, batch, protocols.Loss{Clients: batch.Reports()}, 0)
}

// histogram is the aggregate of a histogram, with the error laws of its bins.
type histogram struct {
	protocols.Aggregate
	protocols.Bins
}

// binsOf returns the error laws of a histogram's bins.
func binsOf(m protocols.Mechanism, agg protocols.Aggregate) protocols.Bins {
	if bins := protocols.CapabilitiesOf(m).Bins; bins != nil {
		return bins(agg)
	}
	return independent{agg}
}

// independent is a histogram whose bins have independent, nearly normal noise: each is a sum of many small parts.
type independent struct{ protocols.Aggregate }

// Below implements [protocols.Bins]. It sums from the end of the range that is nearer.
func (a independent) Below() []protocols.ErrorLaw {
	counts, laws, users := a.Total(), a.Errors(), float64(a.Reports())
	sums, variances := make([]float64, len(counts)+1), make([]float64, len(counts)+1)
	for j, law := range laws {
		sums[j+1], variances[j+1] = sums[j]+counts[j], variances[j]+law.Variance()
	}
	k := len(counts)
	out := make([]protocols.ErrorLaw, k-1)
	for j := 1; j < k; j++ {
		law := protocols.Normal{Estimate: sums[j], Plugged: variances[j]}
		if 2*j > k {
			law = protocols.Normal{Estimate: users - (sums[k] - sums[j]), Plugged: variances[k] - variances[j]}
		}
		out[j-1] = law
	}
	return out
}

// Weighted implements [protocols.Bins].
func (a independent) Weighted(weights []float64) protocols.ErrorLaw {
	law, counts := protocols.Normal{}, a.Total()
	for j, of := range a.Errors() {
		law.Estimate += weights[j] * counts[j]
		law.Plugged += weights[j] * weights[j] * of.Variance()
	}
	return law
}

// meanOf returns formula (2) of [distribution] with the interval (3) at a confidence, clipped to the range.
func meanOf(binned histogram, lo, hi float64, missing gap, confidence float64) Location {
	counts, users := binned.Total(), float64(binned.Reports())
	width, mean := (hi-lo)/float64(len(counts)), (lo+hi)/2
	offsets := make([]float64, len(counts))
	for j, count := range counts { // formula (2)
		offsets[j] = (float64(j)+0.5)*width - (hi-lo)/2
		mean += offsets[j] * count / users
	}
	law := binned.Weighted(offsets)
	noiseLo, noiseHi := law.Interval(noiseConfidence(math.Sqrt(law.Variance())/users, width/2, confidence))
	from, to := missing.widen((lo+hi-width)/2+noiseLo/users, (lo+hi+width)/2+noiseHi/users, lo, hi, (hi-lo-width)/2)
	return Location{Name: "mean", Estimate: mean, Interval: interval{max(lo, from), min(hi, to)}.within(lo, hi)}
}

// gap bounds what losses change: the share of clients who may be missing, and the most that missing messages add to a
// share of clients.
type gap struct{ clients, messages float64 }

func newGap(m protocols.LossEffect, clients uint64) gap {
	share := float64(m.Parts) / float64(clients)
	if m.Counted > 0 {
		return gap{clients: share}
	}
	return gap{messages: share * max(-m.Lo, m.Hi)}
}

// widen turns the interval [lo, hi] of a mean over the counted clients into one over all clients. The quantity is
// between least and most. Missing messages move the mean by at most reach times their share.
func (g gap) widen(lo, hi, least, most, reach float64) (from, to float64) {
	return (1-g.clients)*lo + g.clients*least - g.messages*reach,
		(1-g.clients)*hi + g.clients*most + g.messages*reach
}

// noiseConfidence returns 1-2a of formula (3) of [distribution] for the noise's standard deviation and the largest
// bias, both in the range's unit.
func noiseConfidence(deviation, most, confidence float64) float64 {
	if deviation == 0 {
		return confidence
	}
	below := func(x float64) float64 { return math.Erfc(-x/(deviation*math.Sqrt2)) / 2 }
	lo, hi := most, most+protocols.Quantile(confidence)*deviation
	for range 60 {
		if q := (lo + hi) / 2; below(q-most)-below(-q-most) < confidence {
			lo = q
		} else {
			hi = q
		}
	}
	return 1 - math.Erfc((hi-most)/(deviation*math.Sqrt2))
}

// band is the estimated distribution function F at the edges of the bins. laws are the error laws at the inner edges,
// in clients.
type band struct {
	value []float64
	laws  []protocols.ErrorLaw
	users float64
	gap   gap

	confidence float64
	known      map[int][2]float64 // Cache of intervals of F, by edge.
}

func newBand(binned histogram, counts []float64, missing gap) band {
	k, users := len(counts), float64(binned.Reports())
	b := band{make([]float64, k+1), binned.Below(), users, missing, Confidence,
		map[int][2]float64{}}
	b.value[k] = 1
	sum := 0.0
	for j := 1; 2*j <= k; j++ { // formula (1) of distribution
		sum += counts[j-1] / users
		b.value[j] = sum
	}
	sum = 0
	for j := k - 1; 2*j > k; j-- {
		sum += counts[j] / users
		b.value[j] = 1 - sum
	}
	return b
}

// at returns the band with another confidence.
func (b band) at(confidence float64) band {
	b.confidence, b.known = confidence, map[int][2]float64{}
	return b
}

// ends returns formula (4) of [distribution] as indices of edges.
func (b band) ends(p float64) (first, last int) {
	k := len(b.value) - 1
	first, last = 1, k-1
	for first < k && (b.far(first, p) > 0 || b.interval(first)[1] < p) {
		first++
	}
	for last > 0 && (b.far(last, p) < 0 || b.interval(last)[0] > p) {
		last--
	}
	return first - 1, last + 1
}

// interval returns the interval of F_j over all clients.
func (b band) interval(j int) [2]float64 {
	out, ok := b.known[j]
	if !ok {
		lo, hi := b.laws[j-1].Interval(b.confidence)
		out[0], out[1] = b.gap.widen(lo/b.users, hi/b.users, 0, 1, 1)
		b.known[j] = out
	}
	return out
}

// far returns 1 if p lies far above F_j, -1 if far below, else 0. Far means more than 5 standard errors plus 20
// clients, so p is surely outside the interval of F_j and the interval need not be computed. An interval of a band over
// 2¹⁶ epochs, the maximum, reaches 4.94 standard errors.
func (b band) far(j int, p float64) int {
	reach := (5*math.Sqrt(b.laws[j-1].Variance()) + 20) / b.users
	switch lo, hi := b.gap.widen(b.value[j]-reach, b.value[j]+reach, 0, 1, 1); {
	case p > hi:
		return 1
	case p < lo:
		return -1
	}
	return 0
}

// crossing returns the point where the running maximum of F reaches p, in bins from the lowest edge.
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

// Median returns the 0.5 quantile.
func (d *Distribution) Median() Location {
	return d.Quantiles[slices.IndexFunc(d.Quantiles, func(q Location) bool { return q.Probability == 0.5 })]
}
