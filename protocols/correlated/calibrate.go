package correlated

import "math"

// target is what a design has to achieve.
type target struct {
	top        uint64
	sparse     bool
	star       float64 // ε*/Δ
	eps, delta float64
	burst      uint64 // Most messages of one jump of zero-sum noise; 0 for no bound.
}

// solved is a design with what its certificate needs.
type solved struct {
	design
	theta, miss float64
}

// messages returns the expected number of zero-sum noise messages of all clients together.
func (d *design) messages() float64 {
	total := 2 * d.pair.mean()
	for l, n := range atomCounts(d.top) {
		total += 3 * float64(n) * d.levels[l].mean()
	}
	return total
}

// The search. Where the scale of the noise is large against 1, (M1) depends on r, θ and x = s·shift alone,
// and every level costs alike: so all levels share r and x, with a shift by 2^ℓ, and {-1,+1} has its own
// for a shift by Δ. A level whose jumps are bounded well below its scale 1/s takes s = 0 and the r
// with which (M1) is the same. x is found by the certificate of the whole design, the other
// unknowns by coordinate descent, from where they are optimal at ε = 1, δ = 10⁻⁶.

// point is where the search is: logarithms.
type point struct {
	pairR, pairX, r, theta float64
	tilt                   float64 // By how much ln x rises from one level to the next: 0 but for bounded jumps.
}

// cutShare is how much of δ an atom may leave out of T below.
const cutShare = 0.015

// margin keeps claims true where another platform rounds otherwise.
const margin = 2e-3

// solve returns the design of fewest messages that (P2) proves private; ok is false if none was found.
func (t *target) solve() (best solved, ok bool) {
	rest := t.eps - t.star*float64(t.top)
	if t.sparse {
		rest -= t.star * float64(t.top)
	}
	if !(rest > 0) {
		return best, false
	}
	l := math.Log(1 / t.delta)
	at := point{pairR: math.Log(0.37 * l), pairX: -0.25, r: math.Log(1.05 * l), theta: math.Log(0.8 * l / rest)}
	x := math.Log(0.35 * rest)
	cost := math.Inf(1)
	try := func(p point) bool {
		d, lx, found := t.at(p, x)
		if !found || !(d.messages() < cost) {
			return false
		}
		best, ok, cost, at, x = d, true, d.messages(), p, lx
		return true
	}
	try(at)
	if !ok { // Far from the Gaussian limit: a smaller θ.
		for k := 1.0; k <= 4 && !ok; k++ {
			p := at
			p.theta -= 0.7 * k
			try(p)
		}
	}
	for step := 0.24; step > 0.05 && ok; step /= 2 {
		for _, k := range []func(*point) *float64{
			func(p *point) *float64 { return &p.theta },
			func(p *point) *float64 { return &p.r },
			func(p *point) *float64 { return &p.pairX },
			func(p *point) *float64 { return &p.pairR },
			func(p *point) *float64 { return &p.tilt },
		} {
			if t.burst == 0 && k(&at) == &at.tilt {
				continue
			}
			for _, by := range []float64{step, -step} {
				moved := false
				for range 4 {
					p := at
					*k(&p) += by
					if !try(p) {
						break
					}
					moved = true
				}
				if moved {
					break
				}
			}
		}
	}
	return best, ok
}

// at returns the design of largest x that is private at a point, beginning the search at x.
func (t *target) at(p point, x float64) (best solved, bestX float64, ok bool) {
	if p.r < 0 || p.pairR < 0 {
		return best, x, false
	}
	miss := t.delta * cutShare
	theta := math.Exp(p.theta)
	lo, hi := math.Inf(-1), math.Inf(1)
	for range 12 {
		d := t.design(p, x)
		excess := min(math.Log(d.bound(t.eps, theta, miss)/(t.delta*(1-margin))), 50)
		if math.IsNaN(excess) {
			excess = 50
		}
		if excess <= 0 {
			best, bestX, ok, lo = solved{*d, theta, miss}, x, true, x
		} else {
			hi = x
		}
		if excess <= 0 && excess > -0.01 || hi-lo < 1e-3 {
			break
		}
		next := x - 0.25*excess - 0.001*math.Copysign(1, excess) // ln of the bound rises 3 to 10 times as fast as x.
		switch {
		case math.IsInf(hi, 1) || math.IsInf(lo, -1):
			next = min(max(next, x-1), x+0.5)
		case !(next > lo && next < hi):
			next = (lo + hi) / 2
		}
		x = next
	}
	return best, bestX, ok
}

// design returns the design of a point and ln x.
func (t *target) design(p point, x float64) *design {
	d := &design{top: t.top, sparse: t.sparse, star: t.star}
	theta, r := math.Exp(p.theta), math.Exp(p.r)
	d.pair = t.noise(theta, math.Exp(p.pairR), math.Exp(x+p.pairX), t.top, t.burst/2)
	for l := range levels(t.top) {
		d.levels = append(d.levels, t.noise(theta, r, math.Exp(x+p.tilt*float64(l)), 1<<l, t.burst/3))
	}
	return d
}

// noise returns the noise with r and s = x/reach or, where jumps are bounded too low for that, one
// that is about as good: of the same variance, and of that which the Gaussian limit of (M1) asks for.
func (t *target) noise(theta, r, x float64, reach, jump uint64) noise {
	n := noise{r: r, s: x / float64(reach), jump: jump}
	if jump == 0 || float64(jump)*n.s > 12 {
		return n
	}
	scale := uint64(1) // Scale down what is continuous for all purposes.
	for reach/scale > 16 {
		scale *= 2
	}
	small := int64(reach / scale)
	l := newLaw(noise{r: r, s: x / float64(small)}, small, t.delta*cutShare)
	kappa := (l.moment(theta, small, false) + l.moment(theta, -small, true)) / 2
	want := max(r/(n.s*n.s), theta*(theta+1)*float64(reach)*float64(reach)/(2*kappa))
	n.s = 0
	if n.variance() < want {
		n.r *= want / n.variance()
		return n
	}
	lo, hi := 0.0, x/float64(reach)
	for range 30 {
		if n.s = (lo + hi) / 2; n.variance() < want {
			hi = n.s
		} else {
			lo = n.s
		}
	}
	n.s = lo
	return n
}

// variance returns r·Σ_{k ≤ jump} k·e^{-sk}, for a bound on jumps.
func (n noise) variance() float64 {
	j := float64(n.jump)
	if n.s*j < 1e-4 {
		return n.r * j * (j + 1) / 2
	}
	q := math.Exp(-n.s)
	tail := math.Exp(-n.s * j)
	return n.r * (q*(1-tail)/(1-q) - j*tail*q) / (1 - q)
}
