package compose

import "math"

// GaussianDelta is δ(ε) of the pair N(0, 1), N(μ, 1) for μ² > 0 ([BW18], Theorem 8), ε ≥ 0, rounded up:
//
//	δ = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)
//
// and slope is d ln δ/dμ² = φ(ε/μ − μ/2)/(2μδ). ln δ is concave in μ² (docs/proofs/vectormean.md,
// Lemma 3), so that ln δ at any other μ² lies below the tangent. Below 1e-290 there is no slope: it is NaN.
//
// x = ε/μ − μ/2 is off by a few 2⁻⁵³ of itself, and 1 − Φ(x) by x² times that, of which δ may be a small part.
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
// has a δ of at most that at an ε ([GaussianDelta]; [BW18], Theorem 8). It is for choosing parameters and comparing
// errors: what a claim says is derived from the parameters.
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

// upper returns 1 − Φ(x), and density φ(x).
func upper(x float64) float64   { return math.Erfc(x/math.Sqrt2) / 2 }
func density(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// finest is how many blocks there are at most to a standard deviation in [Binomial.Rates].
const finest = 1000

// rateRounding is above the relative error of a rate: differences of scores, which are of size 10 at
// most and exact to 1e-14, over a finest'th of a standard deviation.
const rateRounding = 1e-9

// Rate is what a counter is like beside a Gaussian: seen with v added it is, for every |v| up to a shift, no easier
// to tell from the counter itself than N(v·Eta, 1) from N(0, 1), save for an event of probability Missed.
type Rate struct{ Eta, Missed float64 }

// Rates compares a counter with a Gaussian (docs/proofs/vectormean.md, Theorem 1) for several misses, which fall: each
// Missed is at most its miss if that can be had.
//
//	η = max { Φ⁻¹(F(t)) − Φ⁻¹(F(t−1)) : lo − shift < t ≤ hi + shift },   missed = Pr[y < lo or y > hi]      (3)
//
// F being the distribution function. η is +Inf where the noise is too little for any such interval. Intervals contain
// those before, so that all are looked through once.
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
	lo, hi := margin, last-1-margin // The scores of 0 and 1 are infinite: F(last) = 1.
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

// steepest returns the largest difference of the scores of neighbours from one index to another, or,
// where a standard deviation has more than finest of them, a bound on it over blocks: a mass is at most
// its block's largest, which is at an end or at the mode, and the mass b(t) is the integral of φ from
// score to score, at least the smaller of φ at the block's ends times their difference.
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

// score returns Φ⁻¹(F(first+i)), by Newton's method on the logarithm of the smaller tail, which is
// concave, from a guess. As upper(z) < e^{−z²/2}, no root is above √(−2·ln tail): beyond that a step from
// far away could lead to where the tail is 0.
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
