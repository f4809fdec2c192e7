package protocols

import "math"

// ErrorLaw is the law of the error of one entry of an aggregate's total. Clients' values are fixed: all randomness is
// the protocol's.
type ErrorLaw interface {
	// Variance returns the variance of the entry, estimated from the data. The data cannot show how values were
	// rounded to levels; the largest possible variance is taken for it.
	Variance() float64

	// Interval returns the totals that the data do not contradict. It holds the true total with a probability of at
	// least confidence, in (0, 1). It misses it about as often on either side, as nearly as a law on a lattice
	// allows.
	Interval(confidence float64) (lo, hi float64)
}

// Intervals caches intervals of equal laws of cells or noise. Of a million bins, most were seen one of a few numbers
// of times. Not safe for concurrent use.
type Intervals map[intervalKey][2]float64

type intervalKey struct {
	cell       Cell
	noise      noiseLaw
	confidence float64
}

// Of returns law.Interval(confidence).
func (i Intervals) Of(law ErrorLaw, confidence float64) (lo, hi float64) {
	switch e := law.(type) {
	case completeLaw:
		return e.move(i.Of(e.counted, confidence))
	case Cell:
		key := intervalKey{cell: e, confidence: confidence}
		known, ok := i[key]
		if !ok {
			known[0], known[1] = e.Interval(confidence)
			i[key] = known
		}
		return known[0], known[1]
	case NoisyEstimate:
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
	Plugged  float64 // Variance, from the data.

	// Largest is the square of the most that one report can add. Limit is the variance for the worst values. If
	// reports that add much are rare, a batch may happen to hold none, and the variance of the data is then too
	// small. A Poisson number N of them has a mean of at most N + z·√(N+z²), so Plugged + z²·Largest, but no more
	// than Limit, is enough. Largest is 0 if the parts are known to be many.
	Largest, Limit float64

	// Excess is the excess kurtosis: the second order of the Cornish-Fisher expansion corrects the interval for it.
	Excess float64

	// Step is the distance between the values that the estimate can take. The interval is half a step longer on
	// either side: the continuity correction.
	Step float64
}

// Variance implements [ErrorLaw.Variance].
func (e Normal) Variance() float64 { return e.Plugged }

// Interval implements [ErrorLaw.Interval].
func (e Normal) Interval(confidence float64) (lo, hi float64) {
	z, v := Quantile(confidence), e.Plugged
	if e.Largest > 0 {
		v = min(v+z*z*e.Largest, e.Limit)
	}
	reach := (z+e.Excess*(z*z*z-3*z)/24)*math.Sqrt(v) + e.Step/2
	return e.Estimate - reach, e.Estimate + reach
}

// RoundedLevels are n reports of levels y ∈ {0, …, k}. Each is a value x ∈ [0, 1], rounded stochastically and then
// put through randomized response with blanket probability γ over the k+1 levels.
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

// Parts estimates two sums over the rounded values x̃ = x + rounding:
//
//	Q = Σ(x_i-½)² + R,   R = Σ Var(x̃_i)
//
// Randomized response gives Σ(y/k-½)² the mean (1-γ)Q + nγ·v, v = (k+2)/(12k), which yields Q. The data do not show
// R: values at levels and values between them produce the same levels. So R is the largest possible. That is n/(4k²)
// for k > 1. For k = 1, Q is n/4, and R is n/4 less n(x-½)² ≤ Σ(x_i-½)², x the mean value. For k > 1 that bound would
// be sharper too, but its randomness makes intervals miss too often.
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

// Variance returns the variance of the estimate of Σx: (1) of [RoundedVariance], summed and divided by (1-γ)², in the
// terms Q, R and v of [RoundedLevels.Parts],
//
//	R + (nγ·v + γ(1-γ)Q) / (1-γ)²
func (l RoundedLevels) Variance() float64 {
	squares, rounding := l.Parts()
	g := l.Gamma
	return rounding + (l.Reports*g*blanketVariance(l.K)+g*(1-g)*squares)/((1-g)*(1-g))
}
