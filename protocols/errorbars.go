package protocols

import "math"

// ErrorLaw is what an aggregate knows of the error of one entry of its total. Values are taken as they
// are, not as random: all chance is that of the protocol.
type ErrorLaw interface {
	// Variance returns the variance of the entry as the data show it. Where they cannot show the rounding
	// of values to levels, it is the largest possible.
	Variance() float64

	// Interval returns the totals that the data do not contradict: it holds the true one with a
	// probability of at least confidence, in (0, 1), and misses it about as often on either side, as nearly
	// as a law on a lattice can.
	Interval(confidence float64) (lo, hi float64)
}

// Intervals computes what equal laws of cells or noise have in common once: of a million bins most were seen
// one of a few numbers of times. Not safe for concurrent use.
type Intervals map[intervalKey][2]float64

type intervalKey struct {
	cell       Cell
	noise      noiseLaw
	confidence float64
}

// Of returns law.Interval(confidence).
func (i Intervals) Of(law ErrorLaw, confidence float64) (lo, hi float64) {
	switch e := law.(type) {
	case completed:
		return e.move(i.Of(e.counted, confidence))
	case Cell:
		key := intervalKey{cell: e, confidence: confidence}
		known, ok := i[key]
		if !ok {
			known[0], known[1] = e.Interval(confidence)
			i[key] = known
		}
		return known[0], known[1]
	case Noisy:
		key := intervalKey{noise: e.Noise.noiseLaw, confidence: confidence}
		known, ok := i[key]
		if !ok {
			known[1] = e.Noise.Reach(confidence)
			i[key] = known
		}
		return e.around(known[1])
	}
	return law.Interval(confidence)
}

// Quantile returns the z for which a standard normal variable is in ±z with the given probability.
func Quantile(confidence float64) float64 { return math.Sqrt2 * math.Erfinv(confidence) }

// Normal is the law of a sum of many small independent parts.
type Normal struct {
	Estimate float64
	Plugged  float64 // The variance, from the data.

	// Largest is the square of the most that one report can add, and Limit the variance for the worst
	// values. Where reports that add much are so few that there may happen to be none, the variance of
	// the data is too small; a Poisson number N of them has a mean of at most N + z·√(N+z²), so that
	// Plugged + z²·Largest, but no more than Limit, is enough. 0: the parts are known to be many.
	Largest, Limit float64

	// Excess is the excess kurtosis: the second order of the Cornish-Fisher expansion corrects the interval for
	// it.
	Excess float64

	// Step is the distance between the values that the estimate can have, half of which the interval is
	// longer on either side: the continuity correction.
	Step float64
}

// Variance is [ErrorLaw.Variance].
func (e Normal) Variance() float64 { return e.Plugged }

// Interval is [ErrorLaw.Interval].
func (e Normal) Interval(confidence float64) (lo, hi float64) {
	z, v := Quantile(confidence), e.Plugged
	if e.Largest > 0 {
		v = min(v+z*z*e.Largest, e.Limit)
	}
	reach := (z+e.Excess*(z*z*z-3*z)/24)*math.Sqrt(v) + e.Step/2
	return e.Estimate - reach, e.Estimate + reach
}

// RoundedLevels are n reports of levels y ∈ {0, …, k}, each a value x ∈ [0, 1] rounded stochastically and
// then put through randomized response over the k+1 levels.
type RoundedLevels struct {
	K            uint64
	Gamma        float64
	Reports      float64 // n.
	Sum, Squares float64 // Σy and Σy².
}

// Mean returns the estimate of the mean x, (Σy/k - nγ/2)/(n(1-γ)).
func (l RoundedLevels) Mean() float64 {
	return (l.Sum/float64(l.K)/l.Reports - l.Gamma/2) / (1 - l.Gamma)
}

// Parts returns what the data say of the rounded values x̃ = x + rounding:
//
//	Q = Σ(x_i-½)² + R,   R = Σ Var(x̃_i)
//
// Randomized response gives Σ(y/k-½)² the mean (1-γ)Q + nγ·v, v = (k+2)/(12k), which yields Q. The data
// do not show R: with values at levels and with values between them the same levels come out. So R is
// the largest possible: n/(4k²), or, as Q is n/4 where k = 1, n/4 less n(x-½)² ≤ Σ(x_i-½)², x the mean
// value. For k > 1 that bound would be sharper too, but its chance makes intervals miss too often.
func (l RoundedLevels) Parts() (squares, rounding float64) {
	k, n := float64(l.K), l.Reports
	seen := l.Squares/(k*k) - l.Sum/k + n/4
	squares = min(max((seen-n*l.Gamma*blanketVariance(l.K))/(1-l.Gamma), 0), n/4)
	if l.K > 1 {
		return squares, n / (4 * k * k)
	}
	away := l.Mean() - 0.5
	return squares, max(n/4-n*away*away, 0)
}

// blanketVariance returns the variance (k+2)/(12k) of y/k for a uniform y in {0, …, k}.
func blanketVariance(k uint64) float64 { return float64(k+2) / float64(12*k) }

// Variance returns the variance of the estimate of Σx: (1) of [RoundedVariance], summed and divided by
// (1-γ)², in terms of [RoundedLevels.Parts],
//
//	R + (nγ·v + γ(1-γ)Q) / (1-γ)²
func (l RoundedLevels) Variance() float64 {
	squares, rounding := l.Parts()
	g := l.Gamma
	return rounding + (l.Reports*g*blanketVariance(l.K)+g*(1-g)*squares)/((1-g)*(1-g))
}
