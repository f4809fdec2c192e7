package accountant

import "math"

// laplaceDelta returns δ(ε) of the Laplace mechanism x + Lap(1/ε₀) on [0, 1] by [BBGN19]
// (Lemma 8), rounded up.
//
// Worst pair. With r_x = μ_x/inf μ the privacy amplification variables of any two inputs are
// below those of (0, 1) in convex order (docs/proofs/laplace.md), so that pair bounds all.
//
// Law. In units of γ = e^{−ε₀/2}, with G = L/γ where a user is in the blanket and 0 elsewhere,
//
//	δ = (1/n)·E[(ΣG)₊]
//	G = e^ε₀ − e^ε      with probability ½e^{−ε₀}        (report below 0)
//	G = e^u − e^ε       with density ¼e^{−ε₀/2−u/2} du, 0 ≤ u ≤ ε₀   (between 0 and ½)
//	G = 1 − e^{ε+u}     with the same density            (between ½ and 1)
//	G = 1 − e^{ε+ε₀}    with probability ½e^{−ε₀}        (report above 1)
//
// For many users the sum is inverted as in invert, with no discretisation of G: its transform
// is integrated by Gauss and Legendre's rule, whose error is below 1e-16 (see steps), and
// the relative error of δ below 1e-9. For few users G is rounded to a grid by splitting mass
// between the two neighbours, which keeps the mean and can only raise a convex expectation; see
// lattice for the size of that error.
func laplaceDelta(eps0 float64, users uint64, eps float64) float64 {
	if eps >= eps0 {
		return 0
	}
	n := float64(users)
	l := laplaceLaw{n: n, eps0: eps0, eps: eps, shrink: math.Exp(-eps0 / 2)}
	t := l.steps(0).tune()
	if t.tiny() {
		return 0
	}
	if half := l.halfWindow(t); half*t.width*(200+half*math.Exp(eps0+eps)) < 2e5 {
		return math.Min(1, l.invert(t, half)/n)
	}
	return math.Min(1, l.lattice(t)/n)
}

// laplaceLaw is the law of one step G.
type laplaceLaw struct {
	n, eps0, eps float64
	shrink       float64 // e^{−ε₀/2}
}

// low and high return the ends of the range of G.
func (l *laplaceLaw) low() float64 { return -math.Expm1(l.eps + l.eps0) }

func (l *laplaceLaw) high() float64 { return math.Exp(l.eps) * math.Expm1(l.eps0-l.eps) }

// steps returns G with its continuous parts replaced by 16-point Gauss-Legendre rules in u on
// panels no longer than ¼ on which the phase y·G turns by at most 1, for |y| up to limit.
//
// The integrands e^{ζG(u)−u/2} are entire. On the Bernstein ellipse of parameter 4 around a
// panel they grow by less than e^5, so the rule errs by less than (64/15)·e^5/4³² < 4e-17 of
// the panel's mass times the phase.
func (l *laplaceLaw) steps(limit float64) *steps {
	end := l.shrink * l.shrink / 2
	s := &steps{n: l.n, atoms: []atom{{0, -math.Expm1(-l.eps0 / 2)}, {l.high(), end}, {l.low(), end}}}
	whole := math.Ceil(l.eps0 / 0.25)
	for i := range int(whole) {
		u, width := l.eps0*float64(i)/whole, l.eps0/whole
		parts := math.Ceil(width * limit * math.Exp(u+width+l.eps) / 2)
		for j := range int(math.Max(1, parts)) {
			l.panel(s, u+width*float64(j)/math.Max(1, parts), width/math.Max(1, parts))
		}
	}
	return s
}

// panel adds the nodes of [u, u+width].
func (l *laplaceLaw) panel(s *steps, u, width float64) {
	for i, x := range legendreNodes {
		for _, x := range [2]float64{-x, x} {
			v := u + width*(1+x)/2
			p := l.shrink / 4 * math.Exp(-v/2) * width / 2 * legendreWeights[i]
			s.atoms = append(s.atoms,
				atom{math.Expm1(v) - math.Expm1(l.eps), p}, atom{-math.Expm1(l.eps + v), p})
		}
	}
}

// The positive half of the 16-point Gauss-Legendre rule on [−1, 1].
var (
	legendreNodes = [8]float64{
		0.0950125098376374401853193, 0.2816035507792589132304605, 0.4580167776572273863424194,
		0.6178762444026437484466718, 0.7554044083550030338951012, 0.8656312023878317438804679,
		0.9445750230732325760779884, 0.9894009349916499325961542,
	}
	legendreWeights = [8]float64{
		0.1894506104550684962853967, 0.1826034150449235888667637, 0.1691565193950025381893121,
		0.1495959888165767320815017, 0.1246289712555338720524763, 0.0951585116824927848099251,
		0.0622535239386478928628438, 0.0271524594117540948517806,
	}
)

// halfWindow returns a y from which on |φ(y)|^n ≤ e^-42, φ being the transform of G under the
// tilt, +Inf if the argument below does not give one.
//
// Under the tilt G has a uniform component of some weight w on an interval of some length d:
// the density of the second case above, in G, times the tilt is e^{−3u/2+θ(e^u−e^ε)} up to a
// constant, and is at least its minimum over 0 ≤ u ≤ u₂, at e^u = 3/(2θ) or the nearer end. So
//
//	|φ(y)| ≤ 1 − w·(1 − |sinc(yd/2)|) ≤ 1 − w·min(0.146·(yd/2)², 0.363)
//
// by |sin x/x| ≤ 1−x²/6+x⁴/120 for x ≤ π/2 and ≤ 2/π above.
func (l *laplaceLaw) halfWindow(t *tuned) float64 {
	best := math.Inf(1)
	for _, u2 := range []float64{math.Min(l.eps0, 1.1), l.eps0} {
		low := math.Max(0, math.Min(u2, math.Log(1.5/t.theta)))
		d := math.Expm1(u2)
		tilt := -1.5*low + t.theta*(math.Expm1(low)-math.Expm1(l.eps)) - t.logM/l.n
		w := l.n * l.shrink / 4 * d * math.Exp(tilt) * (1 - 1e-9)
		if 0.363*w > negligible {
			best = math.Min(best, 2/d*math.Sqrt(negligible/(0.146*w)))
		}
	}
	return best
}

// invert returns E[(ΣG)₊] by (1) and (2) of [tuned.invert] without noise (η = 0): the integrand
// is negligible beyond half, up to where the factor 1/|ζ|² makes the sum converge.
func (l *laplaceLaw) invert(t *tuned, half float64) float64 {
	fine := newTuned(l.steps(math.Max(half, t.theta)), t.theta)
	in := inversion{tuned: fine, period: 18 * t.width}
	s := 2 * math.Pi / in.period
	in.value = 0.5 / (t.theta * t.theta)
	in.nodes(s, s, half)
	in.rest += math.Exp(-negligible) * 2 / (half - s)
	return math.Exp(fine.logM) / math.Pi * (s*in.value + in.rest) * (1 + t.margin())
}

// latticeSize is the number J of frequencies of lattice.
const latticeSize = 1 << 17

// lattice returns E[(ΣG)₊] for G rounded to a grid of step h, from the finite sum that the
// inversion becomes on a lattice: with T = Jh,
//
//	E[X₊] ≤ (1/J)·Σ_j E[e^{ζX}]·κ(ζ),   ζ = θ+2πij/T,   κ(ζ) = Σ_{i≥1} hi·e^{−hiζ} = h·e^{−hζ}/(1−e^{−hζ})²
//
// the excess being positive aliases again. Rounding adds at most h²/4 to the variance of each
// of the n steps, and raises δ by about a relative θ²nh²/12, below 1e-4 where this is used.
func (l *laplaceLaw) lattice(t *tuned) float64 {
	h := math.Max(18*t.width, 2*(l.high()-l.low())) / latticeSize
	w, first := l.grid(h)
	total := 0.0
	phi := make([]complex128, latticeSize)
	for j := range w {
		w[j] *= math.Exp(t.theta * h * (first + float64(j)))
		total += w[j]
		phi[(j+int(first)+latticeSize)%latticeSize] += complex(w[j], 0)
	}
	Transform(phi)
	sum := 0.0
	for j, p := range phi[:latticeSize/2+1] {
		term := latticeTerm(l.n, p/complex(total, 0), h, t.theta, 2*math.Pi*float64(j)/latticeSize)
		if j > 0 && j < latticeSize/2 {
			term *= 2
		}
		sum += term
	}
	return sum / latticeSize * math.Exp(l.n*math.Log(total)) * (1 + 1e-8)
}

// latticeTerm returns the real part of φⁿ·κ(ζ), angle being y·h.
func latticeTerm(n float64, phi complex128, h, theta, angle float64) float64 {
	size := n * math.Log(math.Hypot(real(phi), imag(phi)))
	if size < -negligible-10 {
		return math.Exp(-negligible-10) * h / (h * theta * h * theta)
	}
	decay := math.Exp(-h * theta)
	a, b := -math.Expm1(-h*theta)+decay*2*math.Sin(angle/2)*math.Sin(angle/2), decay*math.Sin(angle) // 1−e^{−hζ} = a+ib
	turn := n*math.Atan2(imag(phi), real(phi)) - angle - 2*math.Atan2(b, a)
	return h * decay * math.Exp(size) / (a*a + b*b) * math.Cos(turn)
}

// grid returns the masses of G rounded to the multiples of h, and the index of the first: with
// C(x) = E[(G−x)₊], they are the second differences of C over h.
func (l *laplaceLaw) grid(h float64) (w []float64, first float64) {
	first = math.Floor(l.low()/h) - 1
	last := math.Ceil(l.high()/h) + 1
	before, here := l.call((first-1)*h), l.call(first*h)
	for j := first; j <= last; j++ {
		after := l.call((j + 1) * h)
		w = append(w, math.Max(0, (before-2*here+after)/h))
		before, here = here, after
	}
	w[int(-first)] += -math.Expm1(-l.eps0 / 2)
	return w, first
}

// call returns E[(G−x)₊] over the blanket part of G.
func (l *laplaceLaw) call(x float64) float64 {
	end := l.shrink * l.shrink / 2
	sum := end * (math.Max(0, l.high()-x) + math.Max(0, l.low()-x))
	if c := math.Exp(l.eps) + x; c < math.Exp(l.eps0) { // left: e^u > c
		u := math.Log(math.Max(1, c))
		part := func(u float64) float64 { return 2*math.Exp(u/2) + 2*c*math.Exp(-u/2) }
		sum += l.shrink / 4 * (part(l.eps0) - part(u))
	}
	if c := 1 - x; c > math.Exp(l.eps) { // right: e^{ε+u} < c
		u := math.Min(l.eps0, math.Log(c)-l.eps)
		part := func(u float64) float64 { return -2*c*math.Exp(-u/2) - 2*math.Exp(l.eps+u/2) }
		sum += l.shrink / 4 * (part(u) - part(0))
	}
	return sum
}
