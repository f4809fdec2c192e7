package compose

import "math"

// GaussianDelta returns δ(ε) of the pair N(0, 1), N(μ, 1) for square = μ² > 0 ([BW18], Theorem 8), ε ≥ 0, rounded up:
//
//	δ = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)
//
// slope is d ln δ/dμ² = φ(ε/μ − μ/2)/(2μδ). ln δ is concave in μ² (docs/proofs/vectormean.md, Lemma 3), so ln δ at any
// other μ² lies below the tangent. slope is NaN if δ is below 1e-290.
//
// x = ε/μ − μ/2 has a relative error of a few 2⁻⁵³, which 1 − Φ(x) magnifies by x². δ is a difference and may be much
// smaller than 1 − Φ(x), so the rounding up allows for both.
//
// [BW18]: https://arxiv.org/abs/1805.06530
func GaussianDelta(square, eps float64) (delta, slope float64) {
	mu := math.Sqrt(square)
	x := eps/mu - mu/2
	delta = upper(x)*(1+1e-15*(1+x*x)) - math.Exp(eps)*upper(x+mu)
	if delta < 1e-290 {
		return 1e-290, math.NaN()
	}
	return delta * (1 + 1e-9), density(x) / (2 * mu * delta)
}

// GaussianSquare returns the largest μ², between 10⁻¹² and 10⁶, at which the Gaussian mechanism N(0, 1) against N(μ, 1)
// has at most the given δ at ε = eps ([GaussianDelta]; [BW18], Theorem 8, the Gaussian's exact curve). Use it only to
// choose parameters and to compare errors. To prove a claim, compute δ from the chosen parameters.
func GaussianSquare(eps, delta float64) float64 {
	lo, hi := 1e-12, 1e6
	for range 100 {
		square := math.Sqrt(lo * hi)
		if d, _ := GaussianDelta(square, eps); d > delta {
			hi = square
		} else {
			lo = square
		}
	}
	return lo
}

// upper returns 1 − Φ(x), the upper tail of N(0, 1); density returns φ(x).
func upper(x float64) float64   { return math.Erfc(x/math.Sqrt2) / 2 }
func density(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// finest is the largest number of blocks per standard deviation over which [Binomial.Rates] bounds slopes.
const finest = 1000

// rateRounding exceeds the relative error of a rate. A rate divides a difference of scores by 1/finest of a standard
// deviation; scores have a size of at most 10 and are exact to 1e-14.
const rateRounding = 1e-9

// Rate compares a counter with a Gaussian. For every |v| up to a shift, the counter with v added is no easier to tell
// from the counter itself than N(v·Eta, 1) from N(0, 1), except for an event of probability Missed.
type Rate struct{ Eta, Missed float64 }

// Rates compares a counter with a Gaussian (docs/proofs/vectormean.md, Theorem 1) for several misses in descending
// order. Each result's Missed is at most its miss, if possible. With F the distribution function,
//
//	η = max { Φ⁻¹(F(t)) − Φ⁻¹(F(t−1)) : lo − shift < t ≤ hi + shift },   missed = Pr[y < lo or y > hi]      (3)
//
// η is +Inf if the noise is too small for any interval from lo to hi. Each interval contains the previous one, so one
// pass computes all rates.
func (b *Binomial) Rates(shift uint64, misses []float64) []Rate {
	rates, last := make([]Rate, len(misses)), len(b.masses)-1
	if last < 2*int(min(shift, math.MaxInt32))+1 {
		for k := range rates {
			rates[k] = Rate{math.Inf(1), 1}
		}
		return rates
	}
	margin := int(shift)
	type interval struct{ lo, hi int }
	within := make([]interval, len(misses))
	lo, hi := margin, last-1-margin // F(last) = 1, and the score of probability 1 is infinite.
	for k := len(misses) - 1; k >= 0; k-- {
		for lo < hi && b.up[lo] <= misses[k]/2 {
			lo++
		}
		for hi > lo && b.down[hi] <= misses[k]/2 {
			hi--
		}
		within[k] = interval{lo, hi}
	}
	from, to, most := lo, lo, 0.0
	for k, in := range within {
		most = math.Max(most, math.Max(b.steepest(in.lo-margin, from), b.steepest(to, in.hi+margin)))
		from, to = in.lo-margin, in.hi+margin
		missed := b.down[in.hi+1]
		if in.lo > 0 {
			missed += b.up[in.lo-1]
		}
		rates[k] = Rate{most * (1 + rateRounding), missed*(1+1e-9) + floor}
	}
	return rates
}

// steepest returns the largest difference of the scores of two adjacent outcomes, over the indices from to to. If a
// standard deviation has more than finest outcomes, it returns an upper bound, computed by blocks. A mass is at most
// its block's largest, which is at an end of the block or at the mode. The mass b(t) is the integral of φ from score to
// score, at least the smaller of φ at the block's ends times their difference.
func (b *Binomial) steepest(from, to int) (most float64) {
	block := 1 + int(math.Sqrt(b.Variance())/finest)
	mode := int(math.Floor((b.n+1)*b.p) - b.first)
	before := b.score(from, 0)
	for at := from; at < to; {
		next := min(at+block, to)
		after := b.score(next, before)
		step := after - before
		if block > 1 {
			peak := math.Max(b.masses[at+1], b.masses[next])
			if at < mode && mode <= next {
				peak = b.masses[mode]
			}
			step = peak / density(math.Max(math.Abs(before), math.Abs(after)))
		}
		most = math.Max(most, step)
		at, before = next, after
	}
	return most
}

// score returns Φ⁻¹(F(first+i)). It applies Newton's method to the logarithm of the smaller tail, which is concave,
// starting at guess. upper(z) < e^{−z²/2}, so no root is above √(−2·ln tail). Without that cap, a step from far away
// could lead to a tail of 0.
func (b *Binomial) score(i int, guess float64) float64 {
	tail, side := b.down[i+1], 1.0
	if b.up[i] < tail {
		tail, side = b.up[i], -1
	}
	z, top := math.Max(0, guess*side), math.Sqrt(-2*math.Log(tail))
	for range 100 {
		q := upper(z)
		step := math.Min(q/density(z)*math.Log(q/tail), top-z)
		z += step
		if math.Abs(step) < 1e-13 {
			break
		}
	}
	return z * side
}
