package crosstab

import "math"

// exactLaw is the exact law of an error that takes the values first, first+1, …, such as the error of a sum of cells to
// which relays add dummies.
type exactLaw struct {
	first  float64
	masses []float64
	sums   []float64 // sums[i] is the sum of the first i masses.
}

// negligible is the probability that [newExactLaw] cuts off at each end of a law.
const negligible = 1e-13

// newExactLaw returns the law with these probabilities of the values first, first+1, …. It leaves out both ends, of
// 10⁻¹³ each.
func newExactLaw(first float64, masses []float64) *exactLaw {
	if masses == nil {
		return nil
	}
	for sum := 0.0; len(masses) > 1 && sum+masses[0] < negligible; first++ {
		sum += masses[0]
		masses = masses[1:]
	}
	for sum := 0.0; len(masses) > 1 && sum+masses[len(masses)-1] < negligible; {
		sum += masses[len(masses)-1]
		masses = masses[:len(masses)-1]
	}
	w := &exactLaw{first, masses, make([]float64, len(masses)+1)}
	for i, p := range masses {
		w.sums[i+1] = w.sums[i] + p
	}
	return w
}

// near is the distance at which two values of a [exactLaw] count as equal. first has rounding errors.
const near = 1e-7

// variance returns the variance. The law's mean is 0.
func (w *exactLaw) variance() (sum float64) {
	for i, p := range w.masses {
		x := w.first + float64(i)
		sum += p * x * x
	}
	return sum
}

// below returns Pr[X < x].
func (w *exactLaw) below(x float64) float64 {
	return w.sums[int(min(max(math.Ceil(x-near-w.first), 0), float64(len(w.masses))))]
}

// upTo returns Pr[X ≤ x].
func (w *exactLaw) upTo(x float64) float64 {
	return w.sums[int(min(max(math.Floor(x+near-w.first)+1, 0), float64(len(w.masses))))]
}

// interval returns the largest lo and the smallest hi of the law's values such that Pr[X < lo] and Pr[X > hi] are at
// most (1−confidence)/2.
func (w *exactLaw) interval(confidence float64) (lo, hi float64) {
	tail := (1 - confidence) / 2
	i, j := 0, len(w.masses)-1
	for i < j && w.sums[i+1] <= tail {
		i++
	}
	for all := w.sums[len(w.masses)]; j > i && all-w.sums[j] <= tail; {
		j--
	}
	return w.first + float64(i), w.first + float64(j)
}

// pair is the joint law of the errors a and n of two estimated sums, where the cells of a are some of those of n.
type pair interface {
	// tails returns three probabilities: of n > c, of that and a − s·n ≥ x, and of that and a − s·n ≤ x. s is from 0 to
	// 1; c may be −Inf.
	tails(s, x, c float64) (all, above, below float64)
}

// exactPair is a [pair] of which a and n − a are independent, with these laws.
type exactPair struct{ part, rest *exactLaw }

// tails implements [pair.tails]. a − s·n = (1−s)·a − s·b for n = a + b.
func (p exactPair) tails(s, x, c float64) (all, above, below float64) {
	end := p.rest.sums[len(p.rest.masses)]
	for i, mass := range p.part.masses {
		a := p.part.first + float64(i)
		from := p.rest.upTo(c - a) // b must be larger.
		all += mass * (end - from)
		if s == 0 {
			if a >= x-near {
				above += mass * (end - from)
			}
			if a <= x+near {
				below += mass * (end - from)
			}
			continue
		}
		y := ((1-s)*a - x) / s
		above += mass * max(0, p.rest.upTo(y)-from)
		below += mass * (end - max(from, p.rest.below(y)))
	}
	return all, above, below
}

// normalPair is a [pair] of nearly normal errors with these variances and covariance.
type normalPair struct {
	part, all, covariance float64
	step                  float64 // Step of the values of a, for the continuity correction.
}

// tails implements [pair.tails], by Simpson's rule over n.
func (p normalPair) tails(s, x, c float64) (all, above, below float64) {
	with := p.covariance - s*p.all // covariance of a − s·n and n
	variance := max(0, p.part-2*s*p.covariance+s*s*p.all)
	over := func(x, variance float64) float64 {
		switch {
		case variance > 0:
			return math.Erfc(x/math.Sqrt(2*variance)) / 2
		case x > 0:
			return 0
		}
		return 1
	}
	half := p.step / 2
	if math.IsInf(c, -1) || p.all <= 0 {
		return 1, over(x-half, variance), over(-x-half, variance)
	}
	slope, left := with/p.all, max(0, variance-with*with/p.all)
	const steps = 60
	sigma := math.Sqrt(p.all)
	from, to := max(c, -7*sigma), max(c, 0)+7*sigma
	width := (to - from) / steps
	for i := range steps + 1 {
		n := from + float64(i)*width
		weight := width / 3 * math.Exp(-n*n/(2*p.all)) / (sigma * math.Sqrt(2*math.Pi))
		if i > 0 && i < steps {
			weight *= float64(2 + 2*(i%2))
		}
		all += weight
		above += weight * over(x-half-slope*n, left)
		below += weight * over(slope*n-x-half, left)
	}
	return all, above, below
}
