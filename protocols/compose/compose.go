// Package compose bounds the privacy of many independent observations together, exactly but for a
// discretization that errs on the safe side.
//
// An observation is a pair of distributions (P, Q): what a verifier sees in it if the client's
// value is x, and if it is x′. Its curve, taken over both directions, is
//
//	δ(ε) = max{ Σ(P − e^ε·Q)₊, Σ(Q − e^ε·P)₊ },   ε ≥ 0                              (1)
//
// A pair (A, B) whose curve lies on or above another's at every real ε dominates it: products of
// dominating pairs dominate the product ([ZDW22], Theorem 10), so that the curve of the product of
// the pairs made here bounds that of all observations. For ε < 0 a curve follows from the other
// direction, δ(−ε) = 1 − e^−ε + e^−ε·δ(ε); (1) is symmetric, so it is known by ε ≥ 0 alone.
//
// Discretization. Between the points α_i = e^{ih} of a grid, (1) is replaced by its chord in α,
// which lies above it, as it is convex in α ("connect the dots", [DGKKM22]). The result is the curve
// of the pair with masses
//
//	q_i = s_i − s_{i−1},  p_i = α_i·q_i,  p_{−i} = q_i,  s_i = (δ_{i+1} − δ_i)/(α_{i+1} − α_i)   (2)
//
// on privacy losses ih, and mass δ_G on an infinite loss beyond the last point.
//
// Convolution. With Λ(θ) = ln E_P[e^{θS}] the losses' sum S is convolved under the tilted measure
// e^{θs−Λ(θ)}dP, whose bulk is where the answer comes from, by a Fourier transform:
//
//	δ(ε) = E_P[(1 − e^{ε−S})₊] = E_θ[f(S)],  f(s) = e^{Λ−θs}(1 − e^{ε−s})₊ ≤ F = e^{Λ−θε}·θ^θ/(1+θ)^{1+θ}   (3)
//
// Sums outside the transform's window wrap around and can only add to the result; what they
// themselves are worth is at most F times their tilted probability, which Chernoff's bound gives and
// which is added, as is F times the rounding error of the transform.
//
// [DGKKM22]: https://arxiv.org/abs/2207.04380
// [ZDW22]: https://arxiv.org/abs/2106.08567
package compose

import "math"

// Pair is an observation made Count times.
type Pair struct {
	Delta func(eps float64) float64 // Upper bound on (1), ε ≥ 0; 0 or falling to 0.
	Count uint64                    // ≥ 1.
}

// Delta returns an upper bound on δ(eps), eps > 0, of all pairs together. What it cuts off it adds;
// that is less than a thousandth of scale, the δ that the caller is interested in.
func Delta(pairs []Pair, eps, scale float64) float64 {
	total := 0.0
	for _, p := range pairs {
		total += float64(p.Count)
	}
	tops := make([]float64, len(pairs))
	for i, p := range pairs {
		tops[i] = top(p.Delta, scale*1e-4/total)
	}
	coarse := newSum(pairs, tops, func(i int) float64 { return tops[i] / 64 })
	if coarse.largest() <= eps {
		return coarse.infinite
	}
	theta := coarse.tilt(eps)
	_, sigma := coarse.moments(theta)
	sigma = math.Max(sigma, eps/100) // a few observations may leave next to nothing of it
	size := windowSize(total)
	h := 2 * windowSigmas * sigma / float64(size)
	for _, top := range tops {
		if !(top/h < maxPoints) {
			return 1 // one observation leaks far more than all may
		}
	}
	fine := newSum(pairs, tops, func(int) float64 { return h })
	delta, slack := fine.delta(eps, theta, h, size)
	for wide := 2 * size; slack > 0.01*delta && wide <= 16*size; wide *= 2 {
		delta, slack = fine.delta(eps, theta, h, wide)
	}
	return math.Min(1, delta)
}

// maxPoints bounds the grid, so that a hostile task cannot ask for memory or time.
const maxPoints = 1 << 15

// windowSigmas is how many standard deviations of the tilted sum lie within half a window.
const windowSigmas = 14

// windowSize returns the length of the transform: chords widen the sum's variance by a relative
// total·(windowSigmas/size)² at most, which these keep below 0.1 % up to 2²⁰ observations.
func windowSize(total float64) int {
	size := 1 << 12
	for total*windowSigmas*windowSigmas/float64(size)/float64(size) > 1e-3 && size < 1<<19 {
		size *= 2
	}
	return size
}

// never is an ε beyond which a curve is taken to be flat: at the probability of an infinite loss.
const never = 40

// top returns an ε at which the curve has fallen to the given value above its limit, or nearly.
func top(curve func(float64) float64, value float64) float64 {
	value += curve(never)
	hi := 1.0 / 1024
	for hi < never && curve(hi) > value {
		hi *= 2
	}
	lo := hi / 2
	for range 4 {
		if mid := (lo + hi) / 2; curve(mid) > value {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Min(hi, never)
}

// Chords returns an upper bound on a curve for the price of some points+14 evaluations of it: its chords in
// α between points+1 equally spaced points, which lie above it, as it is convex. The last is where the
// curve has fallen to tail, or nearly; beyond it the bound is flat. With 64 points and the tail far below
// the δ of interest, the variance of a privacy loss grows by some thousandths.
func Chords(curve func(eps float64) float64, points int, tail float64) func(eps float64) float64 {
	h := top(curve, tail) / float64(points)
	values := make([]float64, points+1)
	for i := range values {
		values[i] = curve(float64(i) * h)
	}
	return func(eps float64) float64 {
		i := int(eps / h)
		if i >= points {
			return values[points]
		}
		part := math.Expm1(eps-float64(i)*h) / math.Expm1(h)
		return values[i] + (values[i+1]-values[i])*part
	}
}

// losses is a discretized pair: masses[i] is P's mass at loss (i−half)·h.
type losses struct {
	h        float64
	masses   []float64
	logs     []float64 // Of masses.
	half     int
	infinite float64
	count    float64
}

// newLosses returns (2). The values of the curve on the grid may be any upper bounds: as the true
// curve is convex in α, it lies below their convex hull too, from whose corners the masses are taken.
func newLosses(p Pair, top, h float64) losses {
	g := int(math.Ceil(top/h)) + 1
	l := losses{h: h, masses: make([]float64, 2*g+1), half: g, count: float64(p.Count)}
	corners := hull(p.Delta, h, g)
	l.infinite = corners[len(corners)-1].delta
	first, next := corners[0], corners[1]
	mirrored := (first.delta-next.delta/next.alpha)/(1-1/next.alpha) - 1 // s_{−1}, by symmetry
	l.masses[g] = math.Max(0, slope(first, next)-mirrored)
	for j := 1; j < len(corners); j++ {
		q := -slope(corners[j-1], corners[j])
		if j+1 < len(corners) {
			q += slope(corners[j], corners[j+1])
		}
		at := corners[j].at
		l.masses[g+at], l.masses[g-at] = corners[j].alpha*q, q // (2)
	}
	l.logs = make([]float64, len(l.masses))
	for i, p := range l.masses {
		l.logs[i] = math.Log(p)
	}
	return l
}

// corner is a point of a curve at loss at·h.
type corner struct {
	at           int
	alpha, delta float64
}

func slope(a, b corner) float64 { return (b.delta - a.delta) / (b.alpha - a.alpha) }

// hull returns the corners of the lower convex hull of the curve on the grid from 0 to g.
func hull(curve func(float64) float64, h float64, g int) (corners []corner) {
	for i := range g + 1 {
		c := corner{i, math.Exp(float64(i) * h), curve(float64(i) * h)}
		for n := len(corners); n > 1 && slope(corners[n-2], corners[n-1]) >= slope(corners[n-1], c); n-- {
			corners = corners[:n-1]
		}
		if n := len(corners); n > 0 {
			c.delta = math.Min(c.delta, corners[n-1].delta) // curves do not rise
		}
		corners = append(corners, c)
	}
	return corners
}

// cumulants returns ln Σ p_i·e^{θℓ_i} and the mean and variance of the tilted masses.
func (l *losses) cumulants(theta float64) (log, mean, variance float64) {
	shift := math.Inf(-1)
	for i, p := range l.masses {
		if p > 0 {
			shift = math.Max(shift, l.logs[i]+theta*l.loss(i))
		}
	}
	var s0, s1, s2 float64
	for i, p := range l.masses {
		if p > 0 {
			w, x := math.Exp(l.logs[i]+theta*l.loss(i)-shift), l.loss(i)
			s0, s1, s2 = s0+w, s1+w*x, s2+w*x*x
		}
	}
	mean = s1 / s0
	return shift + math.Log(s0), mean, math.Max(0, s2/s0-mean*mean)
}

func (l *losses) loss(i int) float64 { return float64(i-l.half) * l.h }

// sum is the sum of the losses of all observations.
type sum struct {
	parts    []losses
	infinite float64 // Bound on the probability of an infinite loss.
}

func newSum(pairs []Pair, tops []float64, step func(int) float64) *sum {
	s := &sum{}
	for i, p := range pairs {
		l := newLosses(p, tops[i], step(i))
		s.parts = append(s.parts, l)
		s.infinite += l.count * l.infinite
	}
	return s
}

// largest returns the largest finite sum.
func (s *sum) largest() (most float64) {
	for _, l := range s.parts {
		most += l.count * l.loss(len(l.masses)-1)
	}
	return most
}

// lambda returns Λ(θ).
func (s *sum) lambda(theta float64) (log float64) {
	for i := range s.parts {
		one, _, _ := s.parts[i].cumulants(theta)
		log += s.parts[i].count * one
	}
	return log
}

// moments returns the mean and the standard deviation of the tilted sum.
func (s *sum) moments(theta float64) (mean, sigma float64) {
	variance := 0.0
	for i := range s.parts {
		_, m, v := s.parts[i].cumulants(theta)
		mean += s.parts[i].count * m
		variance += s.parts[i].count * v
	}
	return mean, math.Sqrt(variance)
}

// tilt returns the θ at which F of (3) is least: where the tilted mean is ε + ln(1 + 1/θ).
func (s *sum) tilt(eps float64) float64 {
	lo, hi := math.Log(1e-3), math.Log(1e4)
	for range 40 {
		mid := (lo + hi) / 2
		theta := math.Exp(mid)
		if mean, _ := s.moments(theta); mean < eps+math.Log1p(1/theta) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Exp(hi)
}

// roundingError bounds the relative error of the transform per observation and point of the window.
const roundingError = 1e-15

// delta returns (3) with the additions the package comment names, and what of it is due to the window
// and to rounding. It holds for every θ > 0; that of the coarse grid is nearly the best.
func (s *sum) delta(eps, theta, h float64, size int) (delta, slack float64) {
	lambda := s.lambda(theta)
	mean, sigma := s.moments(theta)
	sigma = math.Max(sigma, h)
	low, all := int(math.Round(mean/h))-size/2, 2*s.largest() < h*float64(size-2)
	if all { // every sum fits: no Chernoff bound is needed
		low = -size / 2
	}
	masses, observations := s.convolve(theta, size)
	for k := low; k < low+size; k++ {
		if x := float64(k) * h; x > eps {
			delta += math.Max(0, masses[(k%size+size)%size]) * math.Exp(lambda-theta*x) * -math.Expm1(eps-x)
		}
	}
	outside := observations * float64(size) * roundingError
	if !all {
		outside += s.tail(theta, lambda, float64(low+size)*h, 12/sigma) + s.tail(theta, lambda, float64(low)*h, -math.Min(12/sigma, theta))
	}
	slack = outside * math.Exp(lambda-theta*eps+theta*math.Log(theta)-(1+theta)*math.Log1p(theta))
	return (delta+slack)*(1+1e-6) + s.infinite, slack
}

// tail bounds the tilted probability of sums beyond x, above it for turn > 0, else below.
func (s *sum) tail(theta, lambda, x, turn float64) float64 {
	return math.Min(1, math.Exp(s.lambda(theta+turn)-lambda-turn*x))
}

// convolve returns the tilted masses of the sum modulo the window, and the number of observations.
func (s *sum) convolve(theta float64, size int) (masses []float64, observations float64) {
	product := make([]complex128, size)
	for i := range product {
		product[i] = 1
	}
	for i := range s.parts {
		l := &s.parts[i]
		log, _, _ := l.cumulants(theta)
		one := make([]complex128, size)
		for j, p := range l.masses {
			if p > 0 {
				one[((j-l.half)%size+size)%size] += complex(math.Exp(l.logs[j]+theta*l.loss(j)-log), 0)
			}
		}
		fourier(one, 1)
		for j := range product {
			product[j] *= power(one[j], uint64(l.count))
		}
		observations += l.count
	}
	fourier(product, -1)
	masses = make([]float64, size)
	for i := range masses {
		masses[i] = real(product[i]) / float64(size)
	}
	return masses, observations
}

// power returns zⁿ by squaring.
func power(z complex128, n uint64) complex128 {
	out := complex128(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out *= z
		}
		z *= z
	}
	return out
}

// fourier replaces v, whose length is a power of two, by its discrete Fourier transform, with the
// sign of the exponent given and not normalized.
func fourier(v []complex128, sign float64) {
	n := len(v)
	for i, j := 1, 0; i < n; i++ {
		bit := n >> 1
		for ; j&bit != 0; bit >>= 1 {
			j ^= bit
		}
		j ^= bit
		if i < j {
			v[i], v[j] = v[j], v[i]
		}
	}
	roots := make([]complex128, n/2)
	for i := range roots {
		sin, cos := math.Sincos(sign * 2 * math.Pi * float64(i) / float64(n))
		roots[i] = complex(cos, sin)
	}
	for length := 2; length <= n; length *= 2 {
		for from := 0; from < n; from += length {
			for k := range length / 2 {
				a, b := v[from+k], v[from+k+length/2]*roots[k*(n/length)]
				v[from+k], v[from+k+length/2] = a+b, a-b
			}
		}
	}
}
