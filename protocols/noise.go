package protocols

import "math"

// Noise is the probability distribution of a sum of independent symmetric variables. The sum takes whole numbers, or
// numbers half way between whole numbers. It models the noise that a protocol adds to a total, which does not depend on
// the values, and the rounding that widens it most. Not safe for concurrent use.
type Noise struct {
	noiseLaw
	used     int // Number of entries of parts in use.
	variance float64
	values   []float64           // Characteristic function at 2πj/points, j ≥ 0, until it is below vanished.
	points   int                 // Number M of points on the circle, odd.
	reached  map[float64]float64 // Results of Reach by confidence.
}

// noiseLaw holds what determines a Noise's distribution. It is a cache key of [Intervals].
type noiseLaw struct {
	parts  [3]noisePart
	offset float64 // 0 if the sum takes whole numbers, ½ if it takes numbers half way between them.
}

// noisePart is one summand of a Noise, or several alike. At θ ∈ [0, π] the logarithm of its characteristic function is
// power·ln(1 + factor·s²), s = sin(θ/2).
type noisePart struct{ power, factor float64 }

// add adds a summand. A Noise holds at most three.
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

// AddHalves adds the rounding errors of clients whose values lie half way between two levels. Each error is ±½, with
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

// Variance returns the variance of the sum.
func (n *Noise) Variance() float64 { return n.variance }

// vanished is the value below which a characteristic function is treated as 0.
const vanished = 1e-18

// prepare evaluates the characteristic function at 2πj/M. M is so large that |X| practically never reaches M less q:
// some 30 standard deviations, which a discrete Laplace variable exceeds with probability 10⁻¹⁸.
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

// within returns Pr[|X| ≤ q] for a q ≥ 0 that X can attain. It inverts the characteristic function φ at M points of the
// circle, which come in pairs except the first:
//
//	1/M · Σ_j φ(2πj/M)·sin((2q+1)πj/M) / sin(πj/M)
//
// The result is off by the probability of values that lie M - q or more from 0.
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
	lo, hi := -1, n.points/2 // The result is above offset+lo, and at most offset+hi.
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

// NoisyEstimate is the error distribution of an estimate whose error is a [Noise] in steps of Unit.
type NoisyEstimate struct {
	Estimate, Unit float64 // Unit is the size of one step of the noise, in the estimate's units.
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
