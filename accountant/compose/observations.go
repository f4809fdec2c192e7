package compose

import (
	"math"

	"github.com/doona-dp/doona/accountant"
)

// Observation is a pair (P, Q) that a verifier sees Count times. Set either Delta, its curve, or Pair, its losses.
type Observation struct {
	Delta func(eps float64) float64 // Upper bound on the curve δ(ε), ε ≥ 0; 0 or falling to 0.
	Pair  *Pair                     // Used instead of Delta if set.
	Count uint64                    // ≥ 1.
}

// top returns a loss that is exceeded with a probability of about tail.
func (o Observation) top(tail float64) float64 {
	if o.Pair != nil {
		return o.Pair.top(tail)
	}
	return top(o.Delta, tail)
}

// discrete returns the pair of the observation on a grid with the given step. A loss above top becomes infinite.
func (o Observation) discrete(top, step float64) *Pair {
	if o.Pair != nil {
		return o.Pair.regrid(step, top)
	}
	return fromCorners(hull(o.Delta, step, int(math.Ceil(top/step))+1, 1), step)
}

// Delta returns an upper bound on δ(eps), eps > 0, of all observations together. scale is the δ that the caller is
// interested in. Delta cuts off less than a thousandth of scale and adds that to the result. If the result is NaN or an
// intermediate number overflows, it is 1.
func Delta(seen []Observation, eps, scale float64) float64 {
	delta := composed(seen, eps, scale)
	if !(delta >= 0 && delta <= 1) {
		return 1
	}
	return delta
}

// composed is [Delta] before the check for NaN and infinity.
func composed(seen []Observation, eps, scale float64) float64 {
	total := 0.0
	for _, p := range seen {
		total += float64(p.Count)
	}
	tops := make([]float64, len(seen))
	for i, p := range seen {
		tops[i] = p.top(scale * 1e-4 / total)
	}
	coarse := newSum(seen, tops, func(i int) float64 { return tops[i] / 64 })
	if coarse.largest() <= eps {
		return coarse.infinite
	}
	theta := coarse.tilt(eps)
	_, sigma := coarse.moments(theta)
	sigma = math.Max(sigma, eps/100) // with few observations the tilted sum may have almost no spread
	size := windowSize(total)
	h := 2 * windowSigmas * sigma / float64(size)
	for _, top := range tops {
		if !(top/h < maxPoints) {
			return 1 // this observation alone leaks far more than all may leak together
		}
	}
	fine := newSum(seen, tops, func(int) float64 { return h })
	delta, slack := fine.delta(eps, theta, h, size)
	for wide := 2 * size; slack > 0.01*delta && wide <= min(16*size, 1<<20); wide *= 2 {
		delta, slack = fine.delta(eps, theta, h, wide)
	}
	return delta
}

// maxPoints bounds the grid of one observation, so that a hostile task cannot exhaust memory or time.
const maxPoints = 1 << 15

// windowSigmas is half the width of a window, in standard deviations of the tilted sum.
const windowSigmas = 14

// windowSize returns the length of the transform for total observations. Chords widen the sum's variance by at most a
// relative total·(windowSigmas/size)². These lengths keep that below 0.1 % up to 2²⁰ observations.
func windowSize(total float64) int {
	size := 1 << 12
	for total*windowSigmas*windowSigmas/float64(size)/float64(size) > 1e-3 && size < 1<<19 {
		size *= 2
	}
	return size
}

// flatEpsilon is an ε beyond which a curve counts as constant. Its value there is the probability of an infinite loss.
const flatEpsilon = 40

// top returns an ε at which the curve is about value above its limit at flatEpsilon.
func top(curve func(float64) float64, value float64) float64 {
	value += curve(flatEpsilon)
	hi := 1.0 / 1024
	for hi < flatEpsilon && curve(hi) > value {
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
	return math.Min(hi, flatEpsilon)
}

// Chords returns an upper bound on a curve, from about points+14 evaluations. The bound consists of the curve's chords
// in α = e^ε between points+1 equally spaced ε. Chords lie above the curve because it is convex in α. The last point is
// where the curve has fallen to about tail; beyond it the bound is constant. With 64 points, and tail far below the δ
// of interest, the variance of the privacy loss grows by a few thousandths.
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

// losses is the discretized pair of an observation: masses[i] is P's mass at loss (i−half)·h.
type losses struct {
	*Pair
	logs  []float64 // ln of each mass
	count float64
}

func newLosses(o Observation, top, h float64) losses {
	pair := o.discrete(top, h)
	l := losses{Pair: pair, logs: make([]float64, len(pair.mass)), count: float64(o.Count)}
	for i, p := range pair.mass {
		l.logs[i] = math.Log(p)
	}
	return l
}

// cumulants returns ln Σ p_i·e^{θℓ_i}, and the mean and variance of the loss under the tilted masses.
func (l *losses) cumulants(theta float64) (log, mean, variance float64) {
	shift := math.Inf(-1)
	for i, p := range l.mass {
		if p > 0 {
			shift = math.Max(shift, l.logs[i]+theta*l.loss(i))
		}
	}
	var s0, s1, s2 float64
	for i, p := range l.mass {
		if p > 0 {
			w, x := math.Exp(l.logs[i]+theta*l.loss(i)-shift), l.loss(i)
			s0, s1, s2 = s0+w, s1+w*x, s2+w*x*x
		}
	}
	mean = s1 / s0
	return shift + math.Log(s0), mean, math.Max(0, s2/s0-mean*mean)
}

// sum is the sum of the losses of all observations.
type sum struct {
	parts    []losses
	infinite float64 // Bound on the probability of an infinite loss.
}

func newSum(seen []Observation, tops []float64, step func(int) float64) *sum {
	s, over := &sum{}, 0.0 // over: the masses of rounded laws may sum to more than 1
	for i, p := range seen {
		l := newLosses(p, tops[i], step(i))
		s.parts = append(s.parts, l)
		s.infinite += l.count * l.infinity
		over += l.count * math.Log(math.Max(1, l.total()))
	}
	if s.infinite > 0 { // without this test 0·Inf would be NaN
		s.infinite *= math.Exp(over)
	}
	if !(s.infinite <= 1 && over <= math.MaxFloat64) { // Also true for a NaN mass.
		s.infinite = 1
	}
	return s
}

// largest returns the largest finite sum.
func (s *sum) largest() (most float64) {
	for _, l := range s.parts {
		most += l.count * l.loss(len(l.mass)-1)
	}
	return most
}

// lambda returns Λ(θ) = ln E[e^{θS}] of the sum S.
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

// tilt returns the θ that minimizes F, the factor of the error bound (3) in the package comment. At this θ the tilted
// mean is ε + ln(1 + 1/θ).
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

// roundingError exceeds the error of a tilted probability per observation. A transform's error is at most η times the
// root of the sum of the squares of its output, with η = 4·log₂(size)·2⁻⁵³, 9e-15 for 2²⁰ ([accountant.Transform]). The
// first transform takes probabilities, whose squares add up to at most 1, so its error is √size·η. Values are of size
// at most 1. So a power and a product multiply errors by no more than the number of observations, and add as many
// roundings. The second transform, divided by the size, divides the root of the sum of squared errors by √size
// (Parseval): √size·η becomes η, and the transform adds another η. Each probability's error is at most the root of the
// sum of all squared errors: 2η for each observation, plus its roundings.
const roundingError = 4e-14

// delta returns δ by formula (3) of the package comment, raised by the error bounds stated there. slack is the part
// added for the window and for rounding. The result is valid for every θ > 0; the caller's θ, found on a coarse grid,
// is nearly the best.
func (s *sum) delta(eps, theta, h float64, size int) (delta, slack float64) {
	lambda := s.lambda(theta)
	mean, sigma := s.moments(theta)
	sigma = math.Max(sigma, h)
	low, all := int(math.Round(mean/h))-size/2, 2*s.largest() < h*float64(size-2)
	if all { // the window holds every sum, so nothing wraps around
		low = -size / 2
	}
	masses, observations := s.convolve(theta, size)
	for k := low; k < low+size; k++ {
		x, mass := float64(k)*h, masses[(k%size+size)%size]
		if x > eps && !(mass <= 0) { // 0·Inf would be NaN.
			delta += mass * math.Exp(lambda-theta*x) * -math.Expm1(eps-x)
		}
	}
	outside := observations * float64(size) * roundingError
	if !all {
		outside += s.tail(theta, lambda, float64(low+size)*h, 12/sigma) +
			s.tail(theta, lambda, float64(low)*h, -math.Min(12/sigma, theta))
	}
	slack = outside * math.Exp(lambda-theta*eps+theta*math.Log(theta)-(1+theta)*math.Log1p(theta))
	return (delta+slack)*(1+1e-6) + s.infinite, slack
}

// tail returns Chernoff's bound on the tilted probability of sums above x (turn > 0) or below x (turn < 0).
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
		for j, p := range l.mass {
			if p > 0 {
				one[((j+l.first)%size+size)%size] += complex(math.Exp(l.logs[j]+theta*l.loss(j)-log), 0)
			}
		}
		accountant.Transform(one)
		for j := range product {
			product[j] *= power(one[j], uint64(l.count))
		}
		observations += l.count
	}
	accountant.Transform(product)
	masses = make([]float64, size)
	for i := range masses {
		masses[i] = real(product[(size-i)%size]) / float64(size)
	}
	return masses, observations
}
