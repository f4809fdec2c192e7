package augmented

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
)

// errorLaw is the law of an estimate whose error is unit·(X + Y): X the sum of what relays added, less its
// mean, and Y normal.
type errorLaw struct {
	estimate, unit float64
	first          float64   // The smallest X.
	masses         []float64 // Of first, first+1, …
	sums           []float64 // Of the first masses: none, one, …
	sigma          float64   // Of Y; 0 for none.
}

// mostPoints is up to where the law of X is computed: with more draws it is as good as normal.
const mostPoints = 1 << 17

// dilution is the law of what relays added to one sum of cells: many cells share one.
type dilution struct {
	law    relaynoise.Law
	draws  uint64
	masses []float64 // Of the sum of all draws; nil where it is as good as normal.
	sums   []float64 // Of the first of them: none, one, …
}

func newDilution(law relaynoise.Law, draws uint64) *dilution {
	d := &dilution{law: law, draws: draws}
	if draws > 0 && float64(draws)*float64(len(law.Mass)) <= mostPoints {
		d.masses = power(law.Mass, int(draws))
		d.sums = make([]float64, len(d.masses)+1)
		for i, p := range d.masses {
			d.sums[i+1] = d.sums[i] + p
		}
	}
	return d
}

// errorLaw returns that of an estimate with the variance of Y in units.
func (d *dilution) errorLaw(estimate, unit, variance float64) protocols.ErrorLaw {
	n, law := float64(d.draws), d.law
	if d.masses == nil {
		return protocols.Normal{Estimate: estimate, Plugged: (n*law.Variance() + variance) * unit * unit, Step: unit}
	}
	return protocols.Once(&errorLaw{
		estimate: estimate, unit: unit, first: n * (float64(law.First) - law.Mean()),
		masses: d.masses, sums: d.sums, sigma: math.Sqrt(variance),
	})
}

// power returns the masses of the sum of times independent variables with the given ones.
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

// Variance is [protocols.ErrorLaw.Variance].
func (e *errorLaw) Variance() float64 {
	variance := e.sigma * e.sigma
	for i, p := range e.masses { // the mean is 0
		x := e.first + float64(i)
		variance += p * x * x
	}
	return variance * e.unit * e.unit
}

// Interval is [protocols.ErrorLaw.Interval].
func (e *errorLaw) Interval(confidence float64) (lo, hi float64) {
	tail := (1 - confidence) / 2
	return e.estimate - e.unit*e.reached(1-tail), e.estimate - e.unit*e.last(tail)
}

// reached returns the least x, of the lattice if there is no Y, with Pr[X+Y ≤ x] ≥ p.
func (e *errorLaw) reached(p float64) float64 {
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

// root returns the x with Pr[X+Y ≤ x] = p for σ > 0, or 10⁻⁶ standard deviations more, by false position where
// the end that stays counts half (Illinois).
func (e *errorLaw) root(p float64) float64 {
	spread := 10 * e.sigma
	lo, hi := e.first-spread, e.first+float64(len(e.masses))+spread
	deviation := math.Sqrt(e.Variance()) / e.unit
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
		return e.reached(p)
	}
	sum := 0.0
	for i, mass := range e.masses {
		if sum += mass; sum > p {
			return e.first + float64(i)
		}
	}
	return e.first + float64(len(e.masses)-1)
}

// below returns Pr[X+Y ≤ x] for σ > 0. Of X beyond 9 standard deviations of Y, Y decides nothing: 10⁻¹⁸.
func (e *errorLaw) below(x float64) float64 {
	place := func(x float64) int { return int(min(max(x-e.first, 0), float64(len(e.masses)))) }
	from, to := place(x-9*e.sigma), place(x+9*e.sigma+1)
	sum := e.sums[from]
	for i := from; i < to; i++ {
		sum += e.masses[i] * math.Erfc((e.first+float64(i)-x)/(e.sigma*math.Sqrt2)) / 2
	}
	return sum
}
