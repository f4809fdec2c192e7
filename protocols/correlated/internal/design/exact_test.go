package design

import (
	"math"

	"github.com/doona-dp/doona/accountant"
)

// Exact composition: it convolves the privacy loss of every pair of inputs, coordinate by coordinate. It is too slow
// for a client. It measures how far the bound of [certificate] lies above the truth, and tests it. It is not linked
// into doona.wasm.
//
// Pessimistic discretisation. Let (P, Q) be a pair with loss L = ln P/Q under P. Move the probability of each loss up
// to the next multiple of a step, and losses above the largest multiple to +∞. The result is the loss of another pair,
// which dominates (P, Q): for every ε
//
//	H(ε) = E[(1 - e^{ε-L})₊]                                              (E1)
//
// and the integrand increases in L. Sums of the rounded losses dominate sums of the losses: given the other summands,
// (E1) of a sum is (E1) of one loss at a shifted ε. So the result of [exactDelta] is at least the truth. It is at most
// the truth at ε less one step per coordinate.

// grid is a distribution of rounded losses. mass[k] is the probability of the loss step·(k - zero), with zero the
// middle index. infinite is that of +∞.
type grid struct {
	mass     []float64
	infinite float64
}

// exactGrid describes the grid of total losses: size values, from -size/2 to size/2 - 1 steps.
type exactGrid struct {
	step float64
	size int
}

func (g exactGrid) add(to *grid, loss, p float64) {
	k := math.Ceil(loss/g.step-1e-9) + float64(g.size/2)
	if k >= float64(g.size) {
		to.infinite += p
		return
	}
	to.mass[int(max(k, 0))] += p
}

// shift returns the loss of a distribution against its shift, ln P(z)/P(z+d) under P. It counts all z; those outside
// the law's range count as a loss of +∞.
func (g exactGrid) shift(l law, d int64) *grid {
	to := &grid{mass: make([]float64, g.size)}
	first, end := span(l)
	if _, ok := l.(*negativeBinomial); ok {
		first = max(-d, 0) // below it, the loss is +∞; from is larger if the noise is narrow
	}
	kept := 0.0
	for z := first; z < end; z++ {
		p := math.Exp(l.logP(z))
		kept += p
		g.add(to, l.logP(z)-l.logP(z+d), p)
	}
	to.infinite += max(1-kept, 0)
	return to
}

// mix adds the grid of to the grid to, with a weight and with a constant added to its losses.
func (g exactGrid) mix(to, of *grid, constant, weight float64) {
	steps := int(math.Ceil(constant/g.step - 1e-9))
	for k, m := range of.mass {
		if at := k + steps; m > 0 && at >= g.size {
			to.infinite += weight * m
		} else if m > 0 {
			to.mass[max(at, 0)] += weight * m
		}
	}
	to.infinite += weight * of.infinite
}

func span(l law) (from, to int64) {
	switch l := l.(type) {
	case *negativeBinomial:
		return l.from, l.to
	case *table:
		return l.from, l.to
	}
	panic("correlated: unknown law")
}

// exactDelta returns δ(ε) of a design, maximised over all ordered pairs of inputs, and the maximising pair. The design
// must be for values of one number, without the message 0 of padding none.
func exactDelta(d *Design, eps float64, g exactGrid, miss float64) (worst float64, at [2]uint64) {
	x := exact{Design: d, exactGrid: g, spectra: map[[2]int64]*spectrum{}, pairs: map[int64]*grid{}}
	x.pairLaw = newLaw(d.Pair, int64(d.Top), miss)
	for l, n := range d.Levels {
		x.laws = append(x.laws, newLaw(n, 1<<l, miss))
	}
	for i := uint64(0); i <= d.Top; i++ {
		for j := uint64(0); j <= d.Top; j++ {
			if i == j {
				continue
			}
			if delta := x.pairDelta(i, j, eps); delta > worst {
				worst, at = delta, [2]uint64{i, j}
			}
		}
	}
	return worst, at
}

type spectrum struct {
	at       []complex128
	infinite float64
}

type exact struct {
	*Design
	exactGrid
	pairLaw law
	laws    []law
	spectra map[[2]int64]*spectrum // Transformed losses of an atom, by level and shift.
	pairs   map[int64]*grid        // Losses of the atom {-1,+1}, by shift.
}

func (x *exact) spectrum(of *grid) *spectrum {
	s := &spectrum{make([]complex128, x.size), of.infinite}
	for k, m := range of.mass {
		s.at[k] = complex(m, 0)
	}
	// Move loss 0 to index 0, so that the indices of a sum add up.
	half := x.size / 2
	for k := range half {
		s.at[k], s.at[k+half] = s.at[k+half], s.at[k]
	}
	accountant.Transform(s.at)
	return s
}

func (x *exact) level(l int, shift int64) *spectrum {
	key := [2]int64{int64(l), shift}
	if s, ok := x.spectra[key]; ok {
		return s
	}
	s := x.spectrum(x.shift(x.laws[l], shift))
	x.spectra[key] = s
	return s
}

// central returns the loss of (S, y₀), formula (P1) of certificate.go, by summation over a, without g.
func (x *exact) central(t, d0 int64) *spectrum {
	g := &grid{mass: make([]float64, x.size)}
	p := math.Exp(-x.Star)
	lo, hi := min(-t, 0), max(-t, 0)
	for a := lo; a <= hi; a++ {
		mass := (1 - p) / (1 + p) * math.Pow(p, math.Abs(float64(a)))
		if a == lo && lo < 0 || a == hi && hi > 0 || t == 0 { // include the tail, of constant loss
			mass /= 1 - p
		}
		if a == 0 && t != 0 {
			mass = 1 / (1 + p)
		}
		if t == 0 {
			mass = 1
		}
		loss := x.Star * (math.Abs(float64(a+t)) - math.Abs(float64(a)))
		shift := d0 + max(0, -a) - max(0, -a-t)
		if x.pairs[shift] == nil {
			x.pairs[shift] = x.shift(x.pairLaw, shift)
		}
		x.mix(g, x.pairs[shift], loss, mass)
	}
	return x.spectrum(g)
}

func (x *exact) pairDelta(i, j uint64, eps float64) float64 {
	d := map[[2]int64]int64{}
	for k, sign := range map[uint64]int64{i: 1, j: -1} {
		for _, e := range column(k) {
			if e.value >= 2 {
				l, _ := level(x.Top, e.value, e.negative)
				v := int64(e.value)
				if e.negative {
					v = -v
				}
				d[[2]int64{int64(l), v}] += sign * e.shift
			}
		}
	}
	total := x.central(int64(i)-int64(j), pairShift(i)-pairShift(j))
	finite := 1 - total.infinite
	product := append([]complex128{}, total.at...)
	for key, shift := range d {
		if shift == 0 {
			continue
		}
		s := x.level(int(key[0]), shift)
		finite *= 1 - s.infinite
		for k := range product {
			product[k] *= s.at[k]
		}
	}
	accountant.Transform(product)
	delta := 1 - finite
	for k := range x.size / 2 { // losses of 0 or more
		if loss := float64(k) * x.step; loss > eps {
			delta += max(real(product[(x.size-k)%x.size])/float64(x.size), 0) * -math.Expm1(eps-loss)
		}
	}
	return delta
}
