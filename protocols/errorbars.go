package protocols

import "math"

// ErrorLaw is the probability distribution of the error of one entry of an aggregate's total. The clients' values are
// fixed: all randomness comes from the protocol.
type ErrorLaw interface {
	// Variance returns the variance of the entry, estimated from the data. The data cannot show how much rounding to
	// levels adds, so Variance assumes the largest possible amount.
	Variance() float64

	// Interval returns a confidence interval for the true total. It contains the true total with a probability of at
	// least confidence, in (0, 1). It misses about equally often on either side, as far as the discrete distribution
	// allows.
	Interval(confidence float64) (lo, hi float64)
}

// Intervals caches the intervals of equal cells and equal noise, because most of a million bins share a few counts. Not
// safe for concurrent use.
type Intervals map[intervalKey][2]float64

type intervalKey struct {
	law        any // A law without its estimate and variance, which decides the interval but for its place.
	confidence float64
}

// Of returns law.Interval(confidence), from the cache if possible.
func (i Intervals) Of(law ErrorLaw, confidence float64) (lo, hi float64) {
	switch e := law.(type) {
	case completeLaw:
		return e.move(i.Of(e.counted, confidence))
	case Cell:
		return i.known(e, confidence)
	case levelSum:
		estimate := e.Estimate
		e.Estimate, e.Plugged = 0, 0
		lo, hi = i.known(e, confidence)
		return estimate + lo, estimate + hi
	case flippedLevels:
		estimate := e.Estimate
		e.Estimate, e.Plugged = 0, 0
		lo, hi = i.known(e, confidence)
		return estimate + lo, estimate + hi
	case NoisyEstimate:
		key := intervalKey{e.Noise.noiseLaw, confidence}
		known, ok := i[key]
		if !ok {
			known[1] = e.Noise.Reach(confidence)
			i[key] = known
		}
		return e.around(known[1])
	}
	return law.Interval(confidence)
}

// known returns the interval of a law that is a key, from the cache if possible.
func (i Intervals) known(law ErrorLaw, confidence float64) (lo, hi float64) {
	key := intervalKey{law, confidence}
	ends, ok := i[key]
	if !ok {
		ends[0], ends[1] = law.Interval(confidence)
		i[key] = ends
	}
	return ends[0], ends[1]
}

// Quantile returns the z such that a standard normal variable lies in [-z, z] with the given probability.
func Quantile(confidence float64) float64 { return math.Sqrt2 * math.Erfinv(confidence) }

// Normal is the nearly normal error distribution of a sum of many small independent parts.
type Normal struct {
	Estimate float64
	Plugged  float64 // Variance of the estimate, estimated from the data.

	// Excess is the excess kurtosis of the error. Interval corrects for it by the second order of the Cornish-Fisher
	// expansion.
	Excess float64

	// Step is the distance between neighbouring values that the estimate can take. Interval adds half a step on either
	// side, as the continuity correction.
	Step float64
}

// Variance implements [ErrorLaw.Variance].
func (e Normal) Variance() float64 { return e.Plugged }

// Interval implements [ErrorLaw.Interval].
func (e Normal) Interval(confidence float64) (lo, hi float64) {
	z := Quantile(confidence)
	reach := (z+e.Excess*(z*z*z-3*z)/24)*math.Sqrt(e.Plugged) + e.Step/2
	return e.Estimate - reach, e.Estimate + reach
}

// RoundedLevels summarizes n reports of levels y ∈ {0, …, k}. A client rounds its value x ∈ [0, 1] stochastically to a
// level. Then it applies randomized response with blanket probability γ over the k+1 levels.
type RoundedLevels struct {
	K            uint64  // k, the highest level.
	Gamma        float64 // γ, the blanket probability.
	Reports      float64 // n, the number of reports.
	Sum, Squares float64 // Σy and Σy² over the reports.
}

// Mean returns the unbiased estimate of the clients' mean value x: (Σy/k - nγ/2)/(n(1-γ)).
func (l RoundedLevels) Mean() float64 {
	return (l.Sum/float64(l.K)/l.Reports - l.Gamma/2) / (1 - l.Gamma)
}

// Parts estimates two sums over the clients' rounded values x̃ = x + rounding error. squares is Q and rounding is R:
//
//	Q = Σ(x_i-½)² + R,   R = Σ Var(x̃_i)
//
// Under randomized response the mean of Σ(y/k-½)² is (1-γ)Q + nγ·v, with v = (k+2)/(12k). Parts solves that for Q. The
// data do not show R: values at levels and values between levels can produce the same reports. So Parts returns the
// largest possible R. For k > 1 that is n/(4k²). For k = 1, Q is n/4, and R is at most n/4 - n(x-½)², x the mean value,
// because Σ(x_i-½)² ≥ n(x-½)². For k > 1 a bound from the mean would be sharper too, but it is random and would make
// intervals miss too often.
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

// Variance returns the variance of the estimate of Σx: the formula of [RoundedVariance], summed over clients and
// divided by (1-γ)². In the terms Q, R and v of [RoundedLevels.Parts] it is
//
//	R + (nγ·v + γ(1-γ)Q) / (1-γ)²
func (l RoundedLevels) Variance() float64 {
	squares, rounding := l.Parts()
	g := l.Gamma
	return rounding + (l.Reports*g*blanketVariance(l.K)+g*(1-g)*squares)/((1-g)*(1-g))
}

// Law returns the error distribution of an estimate of Σx, in the units of a range of this width.
func (l RoundedLevels) Law(estimate, width, variance float64) ErrorLaw {
	return l.Sampled(estimate, width, variance, 1, l.Sum/float64(l.K)-l.Reports/2)
}

// Sampled does the same if each client reports about this sum with probability 1/size. l then has the levels of all
// clients, estimated from the reports about the sum; seen is Σ(y/k-½) over these reports.
func (l RoundedLevels) Sampled(estimate, width, variance, size, seen float64) ErrorLaw {
	squares, _ := l.Parts()
	return levelSum{Estimate: estimate, Width: width, K: l.K, Gamma: l.Gamma, Clients: l.Reports, Size: size,
		Seen: seen, Squares: squares, Plugged: variance}
}

// Flipped returns the error distribution if clients do not report by randomized response. They report the numbers of k
// bits, each flipped with probability Gamma. Sum is that of all reported numbers, and Squares has no meaning.
func (l RoundedLevels) Flipped(estimate, width, variance float64) ErrorLaw {
	return flippedLevels{Estimate: estimate, Width: width, K: l.K, Flip: l.Gamma, Clients: l.Reports, Seen: l.Sum,
		Plugged: variance}
}
