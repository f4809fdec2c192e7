package design

import "math"

// Noise is the distribution of one atom's total over n_min clients. It is compound Poisson with r·e^{-sk}/k expected
// jumps of size k, k ≤ jump (no bound if 0). Without the bound it is the negative binomial NB(r, e^{-s}). For r ≥ 1 it
// is log-concave. The sequence 1, r·q, r·q², …, 0, … with q = e^{-s} is log-concave. E. A. Bender and E. R. Canfield
// (J. Combin. Theory A 74, 1996, Theorem 1; also B. G. Hansen, Ann. Probab. 16, 1988) carry that over to the
// coefficients of exp(Σ r·q^k·z^k/k).
type Noise struct {
	R, S float64
	Jump uint64
}

// Mean returns the expected total of the noise over n_min clients, r·Σ_{k ≤ jump} e^{-sk}.
func (n Noise) Mean() float64 {
	if n.Jump == 0 {
		return n.R / math.Expm1(n.S)
	}
	if n.S == 0 {
		return n.R * float64(n.Jump)
	}
	return n.R * -math.Expm1(-n.S*float64(n.Jump)) / math.Expm1(n.S)
}

// nearlyFree reports whether the bound on jumps is so high that the distribution without a bound can stand for the
// actual one.
func (n Noise) nearlyFree() bool { return n.S*float64(n.Jump) >= 40 }

// excess bounds the statistical distance to noise without a bound on jumps, if that replaces it ([Noise.nearlyFree]):
// the expected number of larger jumps, r·Σ_{k > jump} e^{-sk}/k.
func (n Noise) excess() float64 {
	if n.Jump == 0 || !n.nearlyFree() {
		return 0
	}
	j := float64(n.Jump)
	return n.R * math.Exp(-n.S*j) / (j * math.Expm1(n.S))
}

// law gives the probabilities of a log-concave distribution on the integers from 0, and moments of its privacy loss
// over a set T of integers. If jumps are bounded, the losses of the upper tail have no bound, and T leaves out a rare
// part of it. With cut, T also leaves out a rare lower tail.
type law interface {
	// logP returns ln P(z), z ≥ 0.
	logP(z int64) float64
	// moment returns an upper bound, tight to a few thousandths, of
	//
	//	ln Σ_{z ∈ T} P(z)·(P(z)/P(z+d))^θ                                     (M1)
	//
	// If d < 0, cut must be true. The moment is convex in d for every θ ≥ 0 and T: ln P(z+d) is concave in d, so every
	// term is log-convex in d, and sums of log-convex sequences are log-convex.
	moment(theta float64, d int64, cut bool) float64
	// missed returns an upper bound of the probability of the integers outside T.
	missed(cut bool) float64
}

// newLaw returns the distribution n for shifts up to reach. T leaves out a probability of at most miss in either tail,
// or as much as a shift of -reach requires.
//
// If the bound on jumps hardly matters ([Noise.nearlyFree]), newLaw returns the distribution without a bound;
// [Noise.excess] bounds the difference.
func newLaw(n Noise, reach int64, miss float64) law {
	if n.Jump == 0 || n.nearlyFree() {
		return newNegativeBinomial(n, reach, miss)
	}
	return newTable(n, reach, miss)
}

// negativeBinomial is the distribution of noise without a bound on jumps.
type negativeBinomial struct {
	Noise
	constant float64 // -ln Γ(r) + r·ln(1-p)
	from     int64   // T is z ≥ from with cut, else all z.
	low, to  int64   // The blocks cover low ≤ z < to.
	blocks   []block
}

func newNegativeBinomial(n Noise, reach int64, miss float64) *negativeBinomial {
	lg, _ := math.Lgamma(n.R)
	b := &negativeBinomial{Noise: n, constant: n.R*math.Log(-math.Expm1(-n.S)) - lg}
	mode := int64((n.R - 1) / math.Expm1(n.S)) // from here on, Pr[z+1] < Pr[z]; off by at most one
	quantile := func(mass float64) int64 {
		return search(0, mode, func(z int64) bool { return b.below(z+1) > mass })
	}
	b.from = max(quantile(miss), reach)
	b.low = min(quantile(edge), b.from)
	hi := mode + 2
	for b.above(hi) > edge {
		hi *= 2
	}
	b.to = max(hi, b.from+1)
	for z := b.low; z < b.to; {
		end := min(z+max(int64(blockWidth*float64(z)), 1), b.to)
		if z < b.from {
			end = min(end, b.from)
		}
		mid := z + (end-z)/2
		b.blocks = append(b.blocks, block{z, mid, end, b.logP(mid), gammas(float64(mid), b.R), b.slope(mid)})
		z = end
	}
	return b
}

// block is a range of z, with ln P and two other functions at its middle.
type block struct {
	first, mid, end     int64
	logP, gammas, slope float64
}

// edge is the probability of each tail that moment bounds as a whole instead of by blocks.
const edge = 1e-12

// search returns the least z in [lo, hi] for which f holds, and hi if there is no smaller one. f must be false below
// some z and true from it on. If it is not, search still returns some z.
func search(lo, hi int64, f func(int64) bool) int64 {
	for lo < hi {
		if mid := lo + (hi-lo)/2; f(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// gammas returns ln Γ(z+r) - ln Γ(z+1) for z ≥ 0. From z = 16 on it computes the difference of Stirling's series in a
// form without cancellation. The omitted terms are below 10⁻¹³.
func gammas(z, r float64) float64 {
	if z < 16 {
		hi, _ := math.Lgamma(z + r)
		lo, _ := math.Lgamma(z + 1)
		return hi - lo
	}
	a, b := z+1, z+r
	return (a-0.5)*math.Log1p((r-1)/a) + (r-1)*(math.Log(b)-1) + stirling(b) - stirling(a)
}

func stirling(x float64) float64 {
	v := 1 / (x * x)
	return (1.0/12 - (1.0/360-(1.0/1260-(1.0/1680-v/1188)*v)*v)*v) / x
}

func (b *negativeBinomial) logP(z int64) float64 {
	return gammas(float64(z), b.R) - b.S*float64(z) + b.constant
}

// slope returns ln P(z+1) - ln P(z).
func (b *negativeBinomial) slope(z int64) float64 {
	return math.Log1p((b.R-1)/float64(z+1)) - b.S
}

// below bounds P(< z) from above, for z up to the mode, and above bounds P(≥ z) from above, for z beyond the mode. By
// log-concavity the terms fall at least as fast as a geometric series with the first ratio.
func (b *negativeBinomial) below(z int64) float64 {
	if z <= 0 {
		return 0
	}
	fall := 1.0
	if z >= 2 {
		fall = -math.Expm1(-b.slope(z - 2))
	}
	if !(fall > 0) {
		return 1
	}
	return math.Exp(b.logP(z-1)) / fall
}

func (b *negativeBinomial) above(z int64) float64 {
	fall := -math.Expm1(b.slope(z))
	if !(fall > 0) {
		return 1
	}
	return math.Exp(b.logP(z)) / fall
}

func (b *negativeBinomial) missed(cut bool) float64 {
	if !cut {
		return 0
	}
	return b.below(b.from)
}

// loss returns the privacy loss ln P(z)/P(z+d).
func (b *negativeBinomial) loss(z, d int64) float64 {
	return gammas(float64(z), b.R) - gammas(float64(z+d), b.R) + b.S*float64(d)
}

// blockWidth is the width of a block of moment, relative to z. Within a block, ln P lies below its tangent by
// (r-1)·(w/z)²/24 on average (w is the width): 0.002 for r = 20.
const blockWidth = 0.05

// moment bounds the moment (M1) of law by a sum over blocks. In a block it replaces ln P by a line through its middle,
// with a slope between the two differences there. The line lies above ln P. The loss ln P(z)/P(z+d) has the derivative
// φ(z) - φ(z+d), where φ(z) = ψ(z+r) - ψ(z+1) with the digamma function ψ. φ is positive, falling and convex for r ≥ 1.
// So for d > 0 the loss rises up to d·s and is concave, and a line through its middle replaces it. For d < 0 the loss
// falls and is convex, and its chord replaces it. Each block then sums a geometric series. moment bounds the tails by
// their probability and largest loss.
func (b *negativeBinomial) moment(theta float64, d int64, cut bool) float64 {
	from, total := b.low, 0.0
	if cut {
		from = b.from
	} else {
		total = b.below(b.low) * math.Exp(theta*max(b.loss(b.low, d), 0))
	}
	total += b.above(b.to) * math.Exp(theta*max(b.S*float64(d), b.loss(b.to, d)))
	for _, k := range b.blocks {
		if k.first < from {
			continue
		}
		width := float64(k.end - k.first)
		var at, slope float64 // The line that replaces the loss: its value at mid and its slope.
		switch {
		case d >= 0 || width == 1:
			at = k.gammas - gammas(float64(k.mid+d), b.R) + b.S*float64(d)
			slope = k.slope - b.slope(k.mid+d)
		default:
			first, last := b.loss(k.first, d), b.loss(k.end-1, d)
			slope = (last - first) / (width - 1)
			at = first + slope*float64(k.mid-k.first)
		}
		rate := theta*slope + k.slope
		total += math.Exp(theta*at+k.logP+rate*float64(k.first-k.mid)) * geometric(rate, width)
	}
	return math.Log(total)
}

// geometric returns Σ_{0 ≤ l < w} e^{rate·l}.
func geometric(rate, w float64) float64 {
	if math.Abs(rate*w) < 1e-9 {
		return w * (1 + math.Abs(rate*w))
	}
	return math.Expm1(rate*w) / math.Expm1(rate)
}
