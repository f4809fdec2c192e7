package accountant

import "math"

// exactDelta returns δ(ε) of rule [Exact], rounded up by at most a relative 1e-9 (tiltedWalk.invert states the
// exceptions).
//
// Reveal the blanket bits of all users except the target. With m−1 of the others in the blanket, the world where the
// target holds x has, at the histogram h of the remaining m messages,
//
//	P(h) = Mult(h; m, 1/K)·((1−γ)K·h_x + γm)/m,
//
// since removing one message from cell y changes Mult by the factor K·h_y/m. Hence, averaging over m−1 ~ Bin(n−1, γ)
// and with M ~ Bin(n, γ), N₁ and N₂ its counts in the cells x and x′,
//
//	δ(ε) = 1/(γn)·E[((1−γ)K(N₁ − e^ε·N₂) − γ(e^ε−1)M)₊]                (1)
//
// which is [BBGN19] (Lemma 8, the sum over the blanket) with equality. The code uses the form
//
//	δ(ε) = (1−γ)K/(γn)·E[X₊],   X = N₁ − e^ε·N₂ − κM,   κ = (e^ε−1)·γ/((1−γ)K)   (2)
//
// X is a sum of n independent steps: 1−κ and −e^ε−κ with probability γ/K each, −κ with probability γ−2γ/K, and 0 with
// probability 1−γ. κ is rounded down, which can only raise δ.
func exactDelta(k uint64, gamma float64, users uint64, eps float64) float64 {
	if gamma == 1 {
		return 0
	}
	w := newExactWalk(k, gamma, users, eps)
	if w.up <= 0 { // ε equals ε₀ up to rounding: no step of X is above 0
		return 0
	}
	if w.up == 1 && w.down == 1 {
		return math.Min(1, w.totalVariation())
	}
	value, excess := w.expectation()
	if excess > 1e-6*value { // the inversion did not converge; rule revealed is an upper bound too
		value = math.Min(value, revealedDelta(k, gamma, users, eps))
	}
	return math.Min(1, value)
}

// walk is X = up·N₁ − down·N₂ − kappa·R. The counts (N₁, N₂, R, remainder) are multinomial(n; p, p, rho, rest).
// scale·E[X₊] is δ.
type walk struct {
	n, p, rho, rest float64 // rest is 1−2p−rho, computed without that difference
	up, down, kappa float64
	scale           float64
}

func newExactWalk(k uint64, gamma float64, users uint64, eps float64) walk {
	p, e1 := gamma/float64(k), math.Expm1(eps)*(1-2*ulp)
	kappa := e1 * p / (1 - gamma) * (1 - 4*ulp)
	return walk{
		n: float64(users), p: p, rho: math.Max(0, gamma-2*p), rest: 1 - gamma,
		up: 1 - kappa, down: 1 + e1 + kappa, kappa: kappa,
		scale: (1 - gamma) / (p * float64(users)),
	}
}

// expectation returns scale·E[X₊] as value. It uses direct (a plain sum) if that has few steps, else inversion. excess
// bounds how far value lies above the truth, apart from rounding.
func (w *walk) expectation() (value, excess float64) {
	x := steps{n: w.n, atoms: []atom{{w.up, w.p}, {-w.down, w.p}, {-w.kappa, w.rho}, {0, w.rest}}}
	t := x.tune()
	if t.tiny() {
		return 0, 0
	}
	limit := directLimit / 20.0
	switch {
	case w.n*w.p < 50: // X is too coarse for the inversion
		limit = directLimit * 40
	case t.theta > 0.03: // a large tilt makes the inversion slow
		limit = directLimit
	}
	if w.directCost(t) <= limit {
		return w.direct(t), 0
	}
	value, excess = t.invert()
	return w.scale * value, w.scale * excess
}

// directLimit is the number of steps up to which expectation uses the plain double sum if the inversion would be slow.
// If the inversion is fast, the limit is directLimit/20. If n·p is below 50, the limit is 40·directLimit, because the
// inversion is too coarse.
const directLimit = 1.5e6

// directCost returns the number of steps direct would take.
func (w *walk) directCost(t *tiltedWalk) float64 {
	l := w.tailExponent(t)
	s, r := spread(w.n*2*w.p*(1-2*w.p), l), spread(w.n*w.rho*(1-w.rho), l)
	return math.Min(2*s, w.n) * (math.Min(2*r, w.n) + math.Min(s, w.n) + 20)
}

// tailExponent returns an L such that cut tails of mass e^-L are below a relative 1e-13 of δ.
func (w *walk) tailExponent(t *tiltedWalk) float64 {
	return 34 - math.Min(0, t.logEstimate()+math.Log(w.scale))
}

// spread returns a d such that a binomial variable of the given variance is further than d from its mean with a
// probability of at most 2e^-l, by Bernstein's inequality.
func spread(variance, l float64) float64 {
	return l/3 + math.Sqrt(l*l/9+2*l*variance) + 1
}

// direct returns δ as the plain sum over S = N₁+N₂ ~ Bin(n, 2p) and R. Given S, R is Bin(n−S, ρ/(1−2p)) and N₁ is
// Bin(S, ½). All terms are positive.
//
// Cut tails: X₊ ≤ up·N₁, and size-biasing by N₁ turns (S, R) into (1+S′, R) of one user fewer. So the terms outside a
// range of (S, R) contribute at most scale·np·Pr[(1+S′, R) outside]. Bernstein's inequality bounds the four cut tails;
// direct adds 4e^-L for them. Where E[X₊ | S, R] is linear in R over its range, direct treats it as linear everywhere
// (see splitSum.expectation). Outside the range the true value lies above that line by at most κ·R or κ·(R−high),
// because its slope is between −κ and 0. In total that is at most 4e^-L′·κ·E[R], which direct adds too. L′ exceeds L by
// enough to make this no more than the other tails. L comes from an estimate of δ. If the estimate was too large, the
// tails are not small relative to δ, and direct retries with a larger L.
func (w *walk) direct(t *tiltedWalk) float64 {
	for l := w.tailExponent(t); ; {
		sum, cut := w.directUpTo(l)
		if cut <= 1e-11*sum || l >= 700 {
			return w.scale * (sum + cut) * (1 + 2e-13 + 5e-15*math.Sqrt(w.n))
		}
		l = math.Min(700, l+35+math.Log(cut/(sum+cut)))
	}
}

// directUpTo returns direct's sum over the terms left after cutting tails of mass e^-l, and a bound on the cut terms.
func (w *walk) directUpTo(l float64) (sum, cut float64) {
	d := spread(w.n*2*w.p*(1-2*w.p), l)
	low := math.Max(0, math.Floor(w.n*2*w.p-d))
	high := math.Min(w.n, math.Ceil(w.n*2*w.p+d))
	given := splitSum{walk: w, miss: 1}
	if w.rho > 0 {
		given.q, given.miss = w.rho/(w.rho+w.rest), w.rest/(w.rho+w.rest)
	}
	given.exponent = l + math.Log1p(w.kappa*given.q/(w.p*math.Max(w.up, ulp)))
	for s := math.Max(1, low); s <= high; s++ {
		if pr := binomial(s, w.n, 2*w.p, 1-2*w.p); pr > 0 {
			sum += pr * given.expectation(s)
		}
	}
	return sum, 4 * w.n * (math.Exp(-l)*w.p*w.up + math.Exp(-given.exponent)*w.kappa*given.q)
}

// totalVariation returns δ(0). X is then N₁−N₂, a simple random walk of S steps given S, and
// E[X₊ | S] = ⌈S/2⌉·Pr[Bin(S, ½) = ⌈S/2⌉]. Tails are cut as in direct.
func (w *walk) totalVariation() float64 {
	d := spread(w.n*2*w.p*(1-2*w.p), 50)
	total := 0.0
	for s := math.Max(1, math.Floor(w.n*2*w.p-d)); s <= math.Min(w.n, math.Ceil(w.n*2*w.p+d)); s++ {
		h := math.Ceil(s / 2)
		total += binomial(s, w.n, 2*w.p, 1-2*w.p) * h * binomial(h, s, 0.5, 0.5)
	}
	return (w.scale*total + 2*math.Exp(-50)) * (1 + 1e-13 + 5e-15*math.Sqrt(w.n))
}

// splitSum computes E[X₊ | S] for one S, by sums over R and N₁.
type splitSum struct {
	*walk
	q, miss  float64   // R is Bin(n−S, q), miss being 1−q.
	exponent float64   // Tails of mass e^-exponent are cut.
	tail     []float64 // tail[i] = Pr[N₁ ≥ first+i]
	excess   []float64 // excess[i] = E[(N₁ − first − i + 1)₊]
}

// expectation returns E[X₊ | S = s]. N₂ is Bin(s, ½), like N₁. With y = (up·s − kappa·R)/(up+down) and i = ⌈y⌉−1 the
// largest N₂ below y, the expectation is
//
//	(up+down)·(E[(i−N₂)₊] + (y−i)·Pr[N₂ ≤ i])
//
// Bin(s, ½) is symmetric, so N₂ ≤ i is as likely as N₁ ≥ s−i. y is not computed as a difference from s: if e^ε is
// large, only its distance from 0 counts.
func (g *splitSum) expectation(s float64) float64 {
	low, high := g.rangeOfRest(s)
	y := func(r float64) float64 { return (s*g.up - g.kappa*r) / (g.up + g.down) }
	if y(low) <= 0 {
		return 0
	}
	first := s - math.Ceil(y(low)) + 1
	g.table(s, first, s-y(high))
	if len(g.tail) == 0 { // y is so rare that its probability is 0 in floating point
		return 0
	}
	if below := math.Ceil(y(low)) - 1; y(high) > below { // E[X₊ | S, R] is linear in R: its value at R's mean is enough
		return (g.excess[1] + (y((g.n-s)*g.q)-below)*g.tail[0]) * (g.up + g.down)
	}
	pr, total := 1.0, 0.0
	for r := low; r <= high; r++ {
		switch {
		case g.q > 0 && (int(r-low)%anchorEvery == 0 || pr < underflow):
			pr = binomial(r, g.n-s, g.q, g.miss)
		case g.q > 0:
			pr *= (g.n - s - r + 1) * g.q / (r * g.miss)
		}
		below := math.Ceil(y(r)) - 1
		i := int(s - below - first)
		if below < 0 || i >= len(g.tail) {
			break
		}
		total += pr * (g.excess[i+1] + (y(r)-below)*g.tail[i])
	}
	return total * (g.up + g.down)
}

// rangeOfRest returns the range of R, given S = s, that remains after cutting tails of mass e^-exponent.
func (g *splitSum) rangeOfRest(s float64) (low, high float64) {
	if g.q == 0 {
		return 0, 0
	}
	rest := g.n - s
	d := spread(rest*g.q*g.miss, g.exponent)
	return math.Max(0, math.Floor(rest*g.q-d)), math.Min(rest, math.Ceil(rest*g.q+d))
}

// table fills tail and excess for N₁ ~ Bin(s, ½). It starts at first and stops when the remaining mass is below a
// relative 1e-18 of Pr[N₁ ≥ last]; last is the largest threshold that the caller needs.
func (g *splitSum) table(s, first, last float64) {
	g.tail = g.tail[:0]
	b, sum := binomial(first, s, 0.5, 0.5), 0.0
	for a := first; a <= s && b > 0; a++ {
		g.tail = append(g.tail, b)
		ratio := (s - a) / (a + 1)
		b *= ratio
		if a < last {
			continue
		}
		if sum += b; ratio < 1 && b <= 1e-18*sum*(1-ratio) {
			break
		}
	}
	g.excess = append(g.excess[:0], g.tail...)
	g.excess = append(g.excess, 0)
	for i := len(g.tail) - 2; i >= 0; i-- {
		g.tail[i] += g.tail[i+1]
	}
	for i := len(g.tail) - 1; i >= 0; i-- {
		g.excess[i] = g.excess[i+1] + g.tail[i]
	}
}
