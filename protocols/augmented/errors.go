package augmented

import (
	"math"
	"sync"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
)

// errorLaw is the distribution of an error unit·(X + Y). X is the number of dummies less its mean. Y is normal and
// stands for rounding and local randomization.
type errorLaw struct {
	*dummyLaw
	estimate, unit float64
	sigma          float64 // Standard deviation of Y; 0 if there is no Y.
}

// mostPoints is the largest support for which the distribution of X, the dummies less their mean, is computed. Beyond
// it, with more draws, X is practically normal.
const mostPoints = 1 << 17

// dummyLaws caches distributions of the dummies of several draws. The key is the slice of probabilities of one draw. It
// caches one number of draws, because most batches and epochs have the same number.
type dummyLaws struct {
	draws uint64
	known map[*float64]*dummyLaw
}

// dummyLaw returns the distribution of the sum of this many independent draws of law.
func (m *Mechanism) dummyLaw(law relaynoise.Law, draws uint64) *dummyLaw {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.dummyLaws.known == nil || m.dummyLaws.draws != draws {
		m.dummyLaws = dummyLaws{draws, map[*float64]*dummyLaw{}}
	}
	known := m.dummyLaws.known[&law.Mass[0]]
	if known == nil {
		known = newDummyLaw(law, draws)
		m.dummyLaws.known[&law.Mass[0]] = known
	}
	return known
}

// dummyLaw is the distribution of X, the dummies added to one sum of cells less their mean. Many cells share one. It is
// safe for concurrent use.
type dummyLaw struct {
	normal   bool      // X is practically normal. Then masses and sums are empty.
	variance float64   // Variance of X.
	first    float64   // The smallest value of X.
	masses   []float64 // Probabilities of the values first, first+1, … of X.
	sums     []float64 // sums[i] is the sum of the first i masses.

	lock    sync.Mutex
	reached map[reach][2]float64
}

// reach is the key of a cached interval between whose ends X+Y lies: the standard deviation of Y and the confidence.
type reach struct{ sigma, confidence float64 }

// mostReaches is the largest number of intervals that a dummyLaw caches.
const mostReaches = 1 << 10

func newDummyLaw(law relaynoise.Law, draws uint64) *dummyLaw {
	n := float64(draws)
	d := &dummyLaw{variance: n * law.Variance(), first: n * (float64(law.First) - law.Mean()),
		reached: map[reach][2]float64{}}
	if d.normal = draws == 0 || n*float64(len(law.Mass)) > mostPoints; d.normal {
		return d
	}
	d.masses = power(law.Mass, int(draws))
	d.sums = make([]float64, len(d.masses)+1)
	for i, p := range d.masses {
		d.sums[i+1] = d.sums[i] + p
	}
	return d
}

// errorLaw returns the error distribution of an estimate. variance is that of Y, in squared units.
func (d *dummyLaw) errorLaw(estimate, unit, variance float64) protocols.ErrorLaw {
	if d.normal {
		return protocols.Normal{Estimate: estimate, Plugged: (d.variance + variance) * unit * unit, Step: unit}
	}
	return &errorLaw{d, estimate, unit, math.Sqrt(variance)}
}

// power returns the probabilities of the sum of several independent variables with the given probabilities; times is
// their number.
func power(masses []float64, times int) []float64 {
	length := times*(len(masses)-1) + 1
	size := 1
	for size < length {
		size *= 2
	}
	x := make([]complex128, size)
	for i, p := range masses {
		x[i] = complex(p, 0)
	}
	accountant.Transform(x)
	for i, base := range x {
		one := complex(1, 0)
		for n := times; n > 0; n >>= 1 {
			if n&1 == 1 {
				one *= base
			}
			base *= base
		}
		x[i] = one
	}
	accountant.Transform(x)
	out := make([]float64, length)
	for i := range out {
		out[i] = max(0, real(x[(size-i)%size])/float64(size))
	}
	return out
}

// Variance implements [protocols.ErrorLaw.Variance].
func (e *errorLaw) Variance() float64 { return (e.variance + e.sigma*e.sigma) * e.unit * e.unit }

// Interval implements [protocols.ErrorLaw.Interval].
func (e *errorLaw) Interval(confidence float64) (lo, hi float64) {
	at := reach{e.sigma, confidence}
	e.lock.Lock()
	ends, ok := e.reached[at]
	e.lock.Unlock()
	if !ok {
		tail := (1 - confidence) / 2
		ends = [2]float64{e.last(tail), e.least(1 - tail)}
		e.lock.Lock()
		if len(e.reached) >= mostReaches {
			clear(e.reached)
		}
		e.reached[at] = ends
		e.lock.Unlock()
	}
	return e.estimate - e.unit*ends[1], e.estimate - e.unit*ends[0]
}

// least returns the least x with Pr[X+Y ≤ x] ≥ p. Without Y, x is a value that X can take.
func (e *errorLaw) least(p float64) float64 {
	if e.sigma == 0 {
		sum := 0.0
		for i, mass := range e.masses {
			if sum += mass; sum >= p {
				return e.first + float64(i)
			}
		}
		return e.first + float64(len(e.masses)-1)
	}
	return e.root(p)
}

// root returns the x with Pr[X+Y ≤ x] = p for σ > 0, or at most 10⁻⁶ standard deviations more. It uses the false
// position method that halves the weight of a retained end (Illinois).
func (e *errorLaw) root(p float64) float64 {
	spread := 10 * e.sigma
	lo, hi := e.first-spread, e.first+float64(len(e.masses))+spread
	deviation := math.Sqrt(e.variance + e.sigma*e.sigma)
	for _, x := range []float64{0, -2 * deviation, 2 * deviation, -4 * deviation, 4 * deviation} {
		if x <= lo || x >= hi {
			continue
		}
		if e.below(x) >= p {
			hi = x
		} else {
			lo = x
		}
	}
	least, most := e.below(lo)-p, e.below(hi)-p
	for width := 1e-6 * (1 + deviation); hi-lo > width; {
		x := min(max((lo*most-hi*least)/(most-least), lo+width/2), hi-width/2)
		switch f := e.below(x) - p; {
		case f >= 0:
			hi, most, least = x, f, least/2
		default:
			lo, least, most = x, f, most/2
		}
	}
	return hi
}

// last returns the largest x with Pr[X+Y ≥ x] ≥ 1−p.
func (e *errorLaw) last(p float64) float64 {
	if e.sigma > 0 {
		return e.least(p)
	}
	sum := 0.0
	for i, mass := range e.masses {
		if sum += mass; sum > p {
			return e.first + float64(i)
		}
	}
	return e.first + float64(len(e.masses)-1)
}

// below returns Pr[X+Y ≤ x] for σ > 0. It ignores Y for values of X more than 9 standard deviations of Y away from x,
// an error of 10⁻¹⁸.
func (e *errorLaw) below(x float64) float64 {
	place := func(x float64) int { return int(min(max(x-e.first, 0), float64(len(e.masses)))) }
	from, to := place(x-9*e.sigma), place(x+9*e.sigma+1)
	sum := e.sums[from]
	for i := from; i < to; i++ {
		sum += e.masses[i] * math.Erfc((e.first+float64(i)-x)/(e.sigma*math.Sqrt2)) / 2
	}
	return sum
}
