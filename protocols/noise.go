package protocols

import "math"

// Noise is the law of a sum of independent symmetric variables on the whole numbers, or on the numbers half way
// between them. It models what a protocol adds to a total whatever the values are, with the rounding that makes it
// widest. Not safe for concurrent use.
type Noise struct {
	noiseLaw
	used     int // Number of parts.
	variance float64
	values   []float64 // Characteristic function at 2πj/points, j ≥ 0, until it vanishes.
	points   int       // M, odd.
	reached  map[float64]float64
}

// noiseLaw determines the distribution of a Noise.
type noiseLaw struct {
	parts  [3]noisePart
	offset float64 // 0, or ½ for a law on numbers half way between whole numbers.
}

// noisePart is a part of a Noise: the logarithm of its characteristic function at θ ∈ [0, π] is
// power·ln(1 + factor·s²), s = sin(θ/2).
type noisePart struct{ power, factor float64 }

// add adds a part. At most three kinds of part are allowed.
func (n *Noise) add(power, factor float64) {
	n.parts[n.used] = noisePart{power, factor}
	n.used++
}

// AddPolya adds the difference of two Pólya(r, e^{-s}) variables, whose characteristic function is
//
//	((1-α)² / ((1-α)² + 4α·sin²(θ/2)))^r,   α = e^{-s}
//
// For r = 1 that is the discrete Laplace distribution.
func (n *Noise) AddPolya(r, s float64) {
	half := math.Sinh(s / 2) // (1-α)²/(4α) = sinh²(s/2)
	n.add(-r, 1/(half*half))
	n.variance += r / (2 * half * half)
}

// AddHalves adds the errors of clients whose values lie half way between two levels. Each error is ±½, with
// characteristic function cos(θ/2).
func (n *Noise) AddHalves(clients uint64) {
	n.add(float64(clients)/2, -1)
	n.variance += float64(clients) / 4
	if clients%2 == 1 {
		n.offset = 0.5 - n.offset
	}
}

// AddBinomials adds the difference of two Bin(trials, p) variables, with characteristic function
// (1 - 4p(1-p)·sin²(θ/2))^trials.
func (n *Noise) AddBinomials(trials, p float64) {
	n.add(trials, -4*p*(1-p))
	n.variance += 2 * trials * p * (1 - p)
}

// Variance returns the variance.
func (n *Noise) Variance() float64 { return n.variance }

// vanished is the value below which the falling characteristic function of a Noise is cut off.
const vanished = 1e-18

// prepare evaluates the characteristic function at 2πj/M. M is so large that nothing lies beyond M less the argument:
// some 30 standard deviations, where a discrete Laplace variable has probability 10⁻¹⁸.
func (n *Noise) prepare() {
	n.points = 2*int(math.Ceil(20*math.Sqrt(n.variance)+20)) + 1
	n.reached = map[float64]float64{}
	for j := 0; 2*j < n.points; j++ {
		s := math.Sin(math.Pi * float64(j) / float64(n.points))
		log := 0.0
		for _, part := range n.parts {
			log += part.power * math.Log1p(part.factor*s*s)
		}
		value := math.Exp(log)
		if value < vanished {
			return
		}
		n.values = append(n.values, value)
	}
}

// within returns Pr[|X| ≤ q] for a q ≥ 0 that X can attain. With φ the characteristic function and M points on the
// circle, of which all but the first come in pairs,
//
//	1/M · Σ_j φ(2πj/M)·sin((2q+1)πj/M) / sin(πj/M)
//
// The error is the probability of values that lie M - q or more from 0.
func (n *Noise) within(q float64) float64 {
	sum := 2*q + 1
	for j, value := range n.values[1:] {
		at := math.Pi * float64(j+1) / float64(n.points)
		sum += 2 * value * math.Sin((2*q+1)*at) / math.Sin(at)
	}
	return sum / float64(n.points)
}

// Reach returns the least q that X can attain with Pr[|X| ≤ q] ≥ confidence.
func (n *Noise) Reach(confidence float64) float64 {
	if n.values == nil {
		n.prepare()
	}
	if q, ok := n.reached[confidence]; ok {
		return q
	}
	lo, hi := -1, n.points/2 // The reach is above offset+lo, and at most offset+hi.
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; n.within(n.offset+float64(mid)) >= confidence {
			hi = mid
		} else {
			lo = mid
		}
	}
	n.reached[confidence] = n.offset + float64(hi)
	return n.reached[confidence]
}

// NoisyEstimate is the law of an estimate whose error is a [Noise].
type NoisyEstimate struct {
	Estimate, Unit float64 // Unit is the value of one step of the noise.
	Noise          *Noise
}

// Variance implements [ErrorLaw.Variance].
func (e NoisyEstimate) Variance() float64 { return e.Noise.Variance() * e.Unit * e.Unit }

// Interval implements [ErrorLaw.Interval].
func (e NoisyEstimate) Interval(confidence float64) (lo, hi float64) {
	return e.around(e.Noise.Reach(confidence))
}

func (e NoisyEstimate) around(reach float64) (lo, hi float64) {
	return e.Estimate - reach*e.Unit, e.Estimate + reach*e.Unit
}
