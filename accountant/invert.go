package accountant

import "math"

// atom is one value of a step of a random walk and its probability.
type atom struct{ x, p float64 }

// steps is a sum X of n independent copies of a variable with finitely many values.
type steps struct {
	n     float64
	atoms []atom // probabilities sum to 1
}

// logMGF returns ln E[e^θG] of one step.
func (s *steps) logMGF(theta float64) float64 {
	sum := 0.0
	for _, a := range s.atoms {
		sum += a.p * math.Expm1(theta*a.x)
	}
	return math.Log1p(sum)
}

// tilted returns the mean and the variance of one step under the law tilted by e^θx.
func (s *steps) tilted(theta float64) (mean, variance float64) {
	shift := theta * s.largest()
	var total, first, second float64
	for _, a := range s.atoms {
		w := a.p * math.Exp(theta*a.x-shift)
		total, first, second = total+w, first+w*a.x, second+w*a.x*a.x
	}
	mean = first / total
	for _, a := range s.atoms {
		d := a.x - mean
		variance += a.p * math.Exp(theta*a.x-shift) / total * d * d
	}
	return mean, variance
}

func (s *steps) largest() float64 {
	top := math.Inf(-1)
	for _, a := range s.atoms {
		if a.p > 0 {
			top = math.Max(top, a.x)
		}
	}
	return top
}

// tune returns X with the tilt θ > 0 that minimises E[e^θX]/θ², found by bisection on the stationarity condition
// n·θ·mean(θ) = 2, whose left side increases wherever it is positive. invert is valid for any θ > 0; this θ makes its
// integrand flat.
func (s *steps) tune() *tiltedWalk {
	short := func(theta float64) bool { mean, _ := s.tilted(theta); return s.n*theta*mean < 2 }
	hi := 1.0
	for short(hi) && hi < 1e6 {
		hi *= 2
	}
	lo := hi / 2
	for !short(lo) && lo > 1e-12 {
		lo /= 2
	}
	for range 30 {
		if mid := math.Sqrt(lo * hi); short(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return newTiltedWalk(s, hi)
}

// tiltedWalk is a sum X of steps under a tilt e^θx. [tiltedWalk.invert] returns E[X₊].
type tiltedWalk struct {
	*steps
	theta float64
	logM  float64   // n·ln E[e^θG]
	width float64   // √(n·variance + 2/θ²): the range of X that contributes most
	w     []float64 // tilted probabilities of the atoms
	pairs []pair    // set by setPairs
}

// pair holds weight n·w_i·w_j and gap |x_i − x_j| of two atoms.
type pair struct{ weight, gap float64 }

func newTiltedWalk(s *steps, theta float64) *tiltedWalk {
	_, variance := s.tilted(theta)
	t := &tiltedWalk{steps: s, theta: theta, logM: s.n * s.logMGF(theta)}
	t.width = math.Sqrt(s.n*variance + 2/(theta*theta))
	norm := math.Exp(-t.logM / s.n)
	for _, a := range s.atoms {
		t.w = append(t.w, a.p*math.Exp(theta*a.x)*norm)
	}
	return t
}

// setPairs lists all pairs of atoms, for invert. The first pair sets the period of the windows; the others follow by
// descending weight.
func (t *tiltedWalk) setPairs() {
	for i := range t.atoms {
		for j := range i {
			t.addPair(pair{t.n * t.w[i] * t.w[j], math.Abs(t.atoms[i].x - t.atoms[j].x)})
		}
	}
	rest := t.pairs[1:]
	for i := range rest {
		for j := i; j > 0 && rest[j].weight > rest[j-1].weight; j-- {
			rest[j], rest[j-1] = rest[j-1], rest[j]
		}
	}
}

// addPair adds a pair and keeps the pair with the largest weight·gap² first.
func (t *tiltedWalk) addPair(p pair) {
	if p.weight == 0 || p.gap == 0 {
		return
	}
	t.pairs = append(t.pairs, p)
	if first := t.pairs[0]; p.weight*p.gap*p.gap > first.weight*first.gap*first.gap {
		t.pairs[0], t.pairs[len(t.pairs)-1] = p, first
	}
}

// tiny reports whether E[X₊] ≤ E[e^θX]/(eθ) shows the result to be below 1e-295.
func (t *tiltedWalk) tiny() bool { return t.logM-math.Log(t.theta) < -680 }

// logEstimate returns the logarithm of the saddle-point estimate of E[X₊].
func (t *tiltedWalk) logEstimate() float64 {
	return t.logM - math.Log(t.theta*t.theta*t.width*math.Sqrt(2*math.Pi))
}

// Settings of the inversion's accuracy. Errors are relative.
const (
	smoothing  = 2e-5  // smoothing² is the effect of the noise ηZ, which ends the integral
	windowSkip = 5e-11 // total that may be added for windows that are not evaluated
	wanted     = 7e-10 // an error above this leads to a retry with finer settings
	negligible = 42    // sums end at terms of e^-42 = 6e-19
	patience   = 1e5   // no retry once this many nodes were evaluated
	deep       = -160  // for results below e^-160 = 3e-70 a relative error of 4e-7 suffices
)

// invert returns E[X₊], rounded up by at most a relative 1e-9 (2e-9 above 10⁸ users, 4e-7 if the result is below
// e^-160). If X is nearly a lattice variable (γ close to 1, or ε far below the calibrated one) or n is small, it stops
// after a bounded time, with a relative error below 1e-6. The result is an upper bound in any case: every error either
// raises it, or has a bound that is added to it. excess is the sum of these bounds.
//
// With η > 0, Z standard normal and any θ > 0,
//
//	E[X₊] ≤ E[(X+ηZ)₊] = (1/2π)·∫ F(y) dy,   F(y) = E[e^{ζX}]·e^{η²ζ²/2}/ζ²,   ζ = θ+iy   (1)
//
// The first step is Jensen's inequality; the second holds because the two-sided Laplace transform of x₊ is 1/ζ². By
// Poisson's summation formula the trapezoidal rule with step s gives
//
//	(s/2π)·Σ_j F(js) = Σ_k e^{θkT}·E[(X+ηZ−kT)₊] ≥ E[(X+ηZ)₊],   T = 2π/s       (2)
//
// All terms are positive, so discretisation errs upward. It remains to cut the sum. With tilted probabilities w_i,
// E[e^{ζX}] = E[e^{θX}]·φ(y)^n and for every pair of atoms
//
//	|φ(y)|² ≤ 1 − 2·w_i·w_j·(1−cos(gap·y)), so |φ|^n ≤ exp(−Σ_pairs n·w_i·w_j·(1−cos(gap·y)))  (3)
//
// Terms are evaluated only in windows around the multiples of the period 2π/gap of the first pair, and only if (3)
// does not show the window to be negligible. The bounds of all omitted terms are added to the result. Beyond y = 9/η
// the factor e^{−η²y²/2} ends the sum.
//
// The distance of the result above E[X₊] is known too. With f the density of X+ηZ at 0, from the same sum without the
// 1/ζ², E[(X+ηZ)₊] − E[X₊] ≤ η²·f, since √v·(density of √v·Z at x) is increasing in v. Chernoff's inequality bounds
// the terms k ≠ 0 of (2).
func (t *tiltedWalk) invert() (best, excess float64) {
	t.setPairs()
	best = math.Inf(1)
	in := inversion{tiltedWalk: t, eta: smoothing / t.theta, period: 18 * t.width}
	sparse := in.halfWindow() >= in.window()/2 // few users: no window is negligible
	switch {
	case sparse:
		in.eta *= 100
	case t.logEstimate() < deep:
		in.eta *= 20
	}
	for range 4 {
		value, slack := in.run()
		if value < best {
			best, excess = value, slack
		}
		if slack <= wanted*value || in.count > patience || sparse || t.logEstimate() < deep {
			break
		}
		if in.alias > in.blur {
			in.period *= 1.5
		} else {
			in.eta /= 5
		}
	}
	return best * (1 + t.margin()), excess + 2*t.margin()*best
}

// margin returns a relative bound on the floating-point error of an inversion. With u = 2^-53, the exponents n·ln M
// and n·ln φ are sums of terms of size n·E|θG| ≤ z√n, and n·E|yG| ≤ 9√n at the end of the window. z = θσ√n is below
// 20 for δ ≥ 1e-80. Each term has a relative error of at most 6u, so 2e-14·√n covers both, and 1e-10 the sum.
func (t *tiltedWalk) margin() float64 { return 1e-10 + 2e-14*math.Sqrt(t.n) }

// inversion is one evaluation of the trapezoidal sum (2) of [tiltedWalk.invert].
type inversion struct {
	*tiltedWalk
	eta    float64
	period float64 // T
	// Sums over the nodes y = js, in units of e^{n·ln E[e^θG] + η²θ²/2}.
	value, density float64
	rest           float64 // bound on the omitted terms
	count          int     // nodes evaluated
	blur, alias    float64 // bounds on the errors by the noise ηZ, and by the terms k ≠ 0 of (2)
}

// periods returns the number of windows up to the y where the noise's factor e^{−η²y²/2} ends the sum.
func (in *inversion) periods() float64 { return math.Ceil(in.end() / in.window()) }

func (in *inversion) end() float64    { return 9.2 / in.eta }
func (in *inversion) window() float64 { return 2 * math.Pi / in.pairs[0].gap }

// run returns the upper bound value. slack bounds how far value lies above the truth.
func (in *inversion) run() (value, slack float64) {
	s := 2 * math.Pi / in.period
	in.value, in.density, in.rest = 0.5/(in.theta*in.theta), 0.5, 0
	if half := in.halfWindow(); half < in.window()/2 {
		in.windows(s, half)
	} else {
		in.nodes(s, s, in.end())
	}
	in.rest += math.Exp(-9.1*9.1/2) / (in.end() - s)
	scale := math.Exp(in.logM + in.eta*in.eta*in.theta*in.theta/2)
	value = scale / math.Pi * (s*in.value + in.rest)
	in.blur = in.eta * in.eta * scale / math.Pi * (s*in.density + in.rest/(in.eta*in.eta))
	in.alias = in.aliases(value)
	return value, in.blur + in.alias + 2*scale/math.Pi*in.rest
}

// windows adds the terms whose distance from a multiple of the period is at most half. If the bound (3) on |φ|^n shows
// that the terms near one multiple are below their share of windowSkip, it adds that share instead.
func (in *inversion) windows(s, half float64) {
	in.nodes(s, s, math.Min(half, in.end()))
	in.rest += math.Exp(-negligible) * 2 / (half - s)
	p, windows := in.window(), in.periods()
	share := windowSkip * in.value * s / windows
	// By 1−cos x ≥ 2x²/π², the first pair bounds the window's terms by a Gaussian.
	first, near := in.pairs[0], p-half
	beta := 2 * first.weight * first.gap * first.gap / (math.Pi * math.Pi)
	enough := math.Log((math.Sqrt(math.Pi/beta) + s) / (near * near * share))
	for k := 1.0; k <= windows; k++ {
		if in.damped(k*p, half, enough) {
			in.rest += share
		} else {
			in.nodes(s, k*p-half, math.Min(k*p+half, in.end()))
		}
	}
}

// damped reports whether the noise and the pairs after the first reduce all terms at most half away from y by a factor
// e^−enough. It uses the bound (3) on |φ|^n and 1−cos x ≥ x²/2−x⁴/24.
func (in *inversion) damped(y, half, enough float64) bool {
	near := y - half
	exponent := in.eta * in.eta * near * near / 2
	for _, p := range in.pairs[1:] {
		if exponent >= enough {
			return true
		}
		turns := p.gap * y / (2 * math.Pi)
		phase := 2*math.Pi*math.Abs(turns-math.Floor(turns+0.5)) - p.gap*half - 1e-9
		if phase > 0 {
			phase *= phase
			exponent += p.weight * phase * (0.5 - phase/24)
		}
	}
	return exponent >= enough
}

// halfWindow returns a u such that |φ|^n ≤ e^-42 at distances of u or more from the multiples of the period, by (3)
// with the first pair only. It returns half a period or more if that is impossible.
func (in *inversion) halfWindow() float64 {
	first := in.pairs[0]
	if first.weight*2 <= negligible {
		return math.Inf(1)
	}
	return math.Acos(1-negligible/first.weight) / first.gap
}

// nodes adds the real parts of the terms F(js) of (2) with from ≤ js ≤ to.
func (in *inversion) nodes(s, from, to float64) {
	for j := math.Ceil(from / s); j*s <= to; j++ {
		in.count++
		in.node(j * s)
	}
}

// node adds Re F(y) to value and Re ζ²F(y) to density. It sums φ−1 = a+ib, which avoids cancellation.
func (in *inversion) node(y float64) {
	var a, b float64
	for i, atom := range in.atoms {
		if atom.x != 0 {
			sin, cos := math.Sincos(atom.x * y / 2)
			a -= 2 * in.w[i] * sin * sin
			b += 2 * in.w[i] * sin * cos
		}
	}
	decay := in.n/2*math.Log1p(a*(2+a)+b*b) - in.eta*in.eta*y*y/2
	if decay < -negligible {
		in.rest += math.Exp(-negligible) * 2 * math.Pi / in.period / (in.theta*in.theta + y*y)
		return
	}
	sin, cos := math.Sincos(in.n*math.Atan2(b, 1+a) + in.eta*in.eta*in.theta*y)
	size := math.Exp(decay)
	re, im := in.theta*in.theta-y*y, 2*in.theta*y // ζ²
	in.value += size * (cos*re + sin*im) / (re*re + im*im)
	in.density += size * cos
}

// aliases returns a bound on the terms k ≠ 0 of (2), which the trapezoidal rule adds to E[(X+ηZ)₊].
func (in *inversion) aliases(value float64) float64 {
	d := in.period / (2 * in.width * in.width)
	up := in.theta + d
	rate := d * in.period
	first := in.n*in.logMGF(up) + in.eta*in.eta*up*up/2 - rate
	above := math.Exp(first) / (math.E * up * -math.Expm1(-rate))
	down := math.Exp(-in.theta * in.period)
	return above + down*(value+in.period)/((1-down)*(1-down))
}
