package compose

import "math"

// Binomial is the noise of a counter: Bin(n, p), seen with 0 or 1 added to it.
type Binomial struct {
	n, p   float64
	first  float64   // The smallest outcome in masses.
	masses []float64 // Pr[first+i]; what is cut off is below cut of the largest.
}

// cut is the size below which probabilities are left out, relative to the largest.
const cut = 1e-45

// NewBinomial returns Bin(n, p), 0 < p < 1. The probabilities carry a relative error of about
// 1e-16 times their number, which is 30 standard deviations: they are chained from the largest by
// their ratios and then normalized.
func NewBinomial(n uint64, p float64) *Binomial {
	b := &Binomial{n: float64(n), p: p}
	mode := math.Floor((b.n + 1) * p)
	var below []float64
	for y, w := mode, 1.0; y > 0 && w > cut; y-- {
		w *= y * (1 - p) / ((b.n - y + 1) * p)
		below = append(below, w)
	}
	b.first = mode - float64(len(below))
	for i := len(below) - 1; i >= 0; i-- {
		b.masses = append(b.masses, below[i])
	}
	for y, w := mode, 1.0; y <= b.n && w > cut; y++ {
		b.masses = append(b.masses, w)
		w *= (b.n - y) * p / ((y + 1) * (1 - p))
	}
	total := 0.0
	for _, w := range b.masses {
		total += w
	}
	for i := range b.masses {
		b.masses[i] /= total
	}
	return b
}

// Variance returns np(1-p).
func (b *Binomial) Variance() float64 { return b.n * b.p * (1 - b.p) }

// Delta is the curve of the pair Bin(n, p) and 1 + Bin(n, p), in both directions:
//
//	Σ_y (b(y) − e^ε·b(y−1))₊,   b(y)/b(y−1) = (n−y+1)p/(y(1−p)), falling in y        (1)
//	Σ_y (b(y−1) − e^ε·b(y))₊ = Σ_y (b(y) − e^ε·b(y+1))₊                               (2)
//
// each a sum of positive terms, raised by a relative 1e-11 for rounding and by what was cut off.
func (b *Binomial) Delta(eps float64) float64 {
	e, odds := math.Exp(eps), b.p/(1-b.p)
	up, down := 0.0, 0.0
	for i, w := range b.masses { // (1), y ascending while terms are positive
		y := b.first + float64(i)
		rest := 1 - e*y/((b.n-y+1)*odds)
		if !(rest > 0) {
			break
		}
		up += w * rest
	}
	for i := len(b.masses) - 1; i >= 0; i-- { // (2), y descending
		y := b.first + float64(i)
		rest := 1 - e*(b.n-y)*odds/(y+1)
		if !(rest > 0) {
			break
		}
		down += b.masses[i] * rest
	}
	return math.Max(up, down)*(1+1e-11) + cut
}

// LowTail returns the largest y with Pr[Bin(n, p) < y] at most mass, and an upper bound on that
// probability.
func (b *Binomial) LowTail(mass float64) (y uint64, below float64) {
	sum := (b.n + 1) * cut // what lies before masses
	if b.first == 0 {
		sum = 0
	}
	if sum > mass {
		return 0, 0
	}
	at := b.first
	for _, w := range b.masses {
		if (sum+w)*(1+1e-11) > mass {
			break
		}
		sum, at = sum+w, at+1
	}
	return uint64(math.Min(at, b.n)), sum * (1 + 1e-11)
}
