package compose

import "math"

// Binomial is the noise Bin(n, p) of a counter. The verifier observes it with 0 or 1 added.
type Binomial struct {
	n, p   float64
	first  float64   // Outcome of masses[0].
	masses []float64 // Pr[first+i], without outcomes below cut times the largest.
	up     []float64 // Sums of masses from the smallest outcome to i.
	down   []float64 // Sums of masses from i to the largest outcome.
}

// NewBinomial drops outcomes less likely than cut times the likeliest. floor exceeds the sum of the dropped
// probabilities.
const (
	cut   = 1e-45
	floor = 1e-38
)

// MaxVariance bounds np(1-p) of [NewBinomial], and so its memory: one number for each value within 30 standard
// deviations.
const MaxVariance = 1e8

// NewBinomial returns Bin(n, p), 0 < p < 1, with a variance of at most [MaxVariance]. The probabilities are computed
// from the largest by their ratios and then normalized. Their relative error is about 1e-16 times the root of their
// number.
func NewBinomial(n uint64, p float64) *Binomial {
	b := &Binomial{n: float64(n), p: p}
	if b.Variance() > MaxVariance {
		panic("compose: variance out of range")
	}
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
	b.normalize()
	return b
}

func (b *Binomial) normalize() {
	total := 0.0
	for _, w := range b.masses {
		total += w
	}
	last := len(b.masses) - 1
	b.up, b.down = make([]float64, last+1), make([]float64, last+1)
	for i := range b.masses {
		b.masses[i] /= total
	}
	up, down := 0.0, 0.0
	for i := range b.masses {
		up, down = up+b.masses[i], down+b.masses[last-i]
		b.up[i], b.down[last-i] = up, down
	}
}

// Variance returns np(1-p).
func (b *Binomial) Variance() float64 { return b.n * b.p * (1 - b.p) }

// Delta returns the curve δ(ε) of the pair Bin(n, p) and 1 + Bin(n, p), in both directions. With b(y) = Pr[Bin(n, p)
// = y],
//
//	Σ_y (b(y) − e^ε·b(y−1))₊ = b(y₁) − (e^ε−1)·Pr[y < y₁],   b(y)/b(y−1) = (n−y+1)p/(y(1−p)) > e^ε up to y₁       (1)
//	Σ_y (b(y) − e^ε·b(y+1))₊ = b(y₂) − (e^ε−1)·Pr[y > y₂],   b(y+1)/b(y) < e^−ε from y₂ on                        (2)
//
// Rounding may shift the computed y₁ and y₂, so Delta tries y−1, y and y+1 and takes the largest result. At z standard
// deviations from the mean, the difference in (1) is about 1/z² of its terms. So the rounding error is below a relative
// 1e-9. Delta raises its result by that and by the dropped probability.
func (b *Binomial) Delta(eps float64) float64 {
	e, odds, gain := math.Exp(eps), b.p/(1-b.p), math.Expm1(eps)
	first := math.Ceil((b.n+1)*odds/(odds+e)) - 1       // y₁
	second := math.Floor((b.n*odds*e-1)/(1+odds*e)) + 1 // y₂
	most, last := 0.0, len(b.masses)-1
	for step := -1.0; step <= 1; step++ {
		if i := int(first + step - b.first); i >= 0 && i <= last {
			rest := 0.0
			if i > 0 {
				rest = b.up[i-1]
			}
			most = math.Max(most, b.masses[i]-gain*rest)
		}
		if i := int(second + step - b.first); i >= 0 && i <= last {
			rest := 0.0
			if i < last {
				rest = b.down[i+1]
			}
			most = math.Max(most, b.masses[i]-gain*rest)
		}
	}
	return math.Min(1, most*(1+1e-9)+floor)
}
