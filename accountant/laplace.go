package accountant

import "math"

// laplaceDelta returns δ(ε) of the Laplace mechanism x + Lap(1/ε₀) on [0, 1] by [BBGN19] (Lemma 8, a sum over the
// blanket), rounded up.
//
// Worst pair. With r_x = μ_x/inf μ, the privacy amplification variables of any two inputs are below those of (0, 1) in
// convex order (docs/proofs/laplace.md). So the pair (0, 1) bounds all pairs.
//
// Law. In units of γ = e^{−ε₀/2}, with G = L/γ for a user in the blanket and 0 otherwise,
//
//	δ = (1/n)·E[(ΣG)₊]
//	G = e^ε₀ − e^ε      with probability ½e^{−ε₀}        (report below 0)
//	G = e^u − e^ε       with density ¼e^{−ε₀/2−u/2} du, 0 ≤ u ≤ ε₀   (between 0 and ½)
//	G = 1 − e^{ε+u}     with the same density            (between ½ and 1)
//	G = 1 − e^{ε+ε₀}    with probability ½e^{−ε₀}        (report above 1)
//
// If some 30 users or more are in the blanket under the tilt, E[(ΣG)₊] is computed by inversion as in
// tiltedWalk.invert, without discretisation of G. Gauss and Legendre's rule integrates the transform of G, with an
// error below 1e-16 (see steps); the relative error of δ is below 1e-9. With fewer users, G is rounded to a grid by
// splitting mass between the two neighbours. Splitting keeps the mean and can only raise the expectation of a convex
// function; lattice states the size of that error. For one user E[G₊] has a closed form.
func laplaceDelta(eps0 float64, users uint64, eps float64) float64 {
	if eps >= eps0 {
		return 0
	}
	n := float64(users)
	l := laplaceLaw{n: n, eps0: eps0, eps: eps, shrink: math.Exp(-eps0 / 2)}
	if users == 1 {
		return math.Min(1, l.call(0)*(1+1e-12)+1e-15)
	}
	t := l.steps(0).tune()
	if t.tiny() {
		return 0
	}
	if half := l.halfWindow(t); half*t.width*(200+half*math.Exp(eps0+eps)) < inversionCost {
		return math.Min(1, l.invert(t, half)/n)
	}
	return math.Min(1, l.lattice(t)/n)
}

// laplaceLaw is the distribution of one step G of laplaceDelta's sum.
type laplaceLaw struct {
	n, eps0, eps float64
	shrink       float64 // e^{−ε₀/2}
}

// low and high return the ends of the range of G.
func (l *laplaceLaw) low() float64 { return -math.Expm1(l.eps + l.eps0) }

func (l *laplaceLaw) high() float64 { return math.Exp(l.eps) * math.Expm1(l.eps0-l.eps) }

// steps returns G with its continuous parts replaced by 16-point Gauss-Legendre rules in u, on panels no longer than ¼
// on which the phase y·G changes by at most 1 radian, for |y| up to limit.
//
// The integrands e^{ζG(u)−u/2} are entire. On the Bernstein ellipse of parameter 4 around a panel they grow by less
// than e^5, so the rule errs by less than (64/15)·e^5/4³² < 4e-17 of the panel's mass times the phase.
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

// inversionCost is the largest cost of an inversion, in nodes of some 2 µs each. If an inversion would cost more,
// laplaceDelta uses lattice.
const inversionCost = 1e5

// flat is the D of halfWindow, which looks for |φ|^n ≤ e^-D.
const flat = 30

// halfWindow returns a y from which on |φ(y)|^n ≤ e^-D, φ being the transform of G under the tilt. It returns +Inf if
// neither of the two arguments below gives one.
//
// A density of total variation V has a transform of at most V/|y|. Under the tilt and in v = e^u, the densities of the
// second and the third case of G (see laplaceDelta) are, up to constants, v^{−3/2}·e^{θv} from 1 to e^ε₀, which falls
// and then rises, and v^{−3/2}·e^{−θ·e^ε·v}, which falls. With c the mass of both and V their total variation, |φ(y)| ≤
// 1−c+V/|y|, and so |φ(y)|^n ≤ e^{−n(c−V/|y|)}.
//
// Also, under the tilt G has a uniform component of some weight w on an interval of some length d. The density of the
// second case of G times the tilt is e^{−3u/2+θ(e^u−e^ε)} up to a constant. It is at least its minimum over 0 ≤ u ≤ u₂,
// at e^u = 3/(2θ) or the nearer end. So
//
//	|φ(y)| ≤ 1 − w·(1 − |sinc(yd/2)|) ≤ 1 − w·min(0.146·(yd/2)², 0.363)
//
// by |sin x/x| ≤ 1−x²/6+x⁴/120 for x ≤ π/2 and ≤ 2/π above.
func (l *laplaceLaw) halfWindow(t *tiltedWalk) float64 {
	best := math.Inf(1)
	if mass, variation := l.spreadOut(t); l.n*mass > flat {
		best = variation / (mass - flat/l.n)
	}
	for i := 1.0; i <= 24; i++ {
		u2 := l.eps0 * i / 24
		low := math.Max(0, math.Min(u2, math.Log(1.5/t.theta)))
		d := math.Expm1(u2)
		tilt := -1.5*low + t.theta*(math.Expm1(low)-math.Expm1(l.eps)) - t.logM/l.n
		w := l.n * l.shrink / 4 * d * math.Exp(tilt) * (1 - 1e-9)
		if 0.363*w > flat {
			best = math.Min(best, 2/d*math.Sqrt(flat/(0.146*w)))
		}
	}
	return best
}

// spreadOut returns the c and V of halfWindow.
func (l *laplaceLaw) spreadOut(t *tiltedWalk) (mass, variation float64) {
	for i, w := range t.w {
		if i > 2 { // entries 0 to 2 are G's atoms
			mass += w
		}
	}
	density := func(g, v float64) float64 { // at G = g and v = e^u, including the factor v^{−3/2}
		return l.shrink / 4 * math.Exp(t.theta*g-1.5*v-t.logM/l.n)
	}
	right := density(-math.Expm1(l.eps), 0) + density(l.high(), l.eps0)
	left := density(-math.Expm1(l.eps), 0) * math.Exp(-l.eps)
	return mass * (1 - 1e-9), 2 * (right + left) * (1 + 1e-9)
}

// invert returns E[(ΣG)₊] by the integral (1) and the trapezoidal sum (2) of [tiltedWalk.invert], without noise (η =
// 0). Beyond y = half the integrand is negligible, and the factor 1/|ζ|² makes the sum converge.
func (l *laplaceLaw) invert(t *tiltedWalk, half float64) float64 {
	fine := newTiltedWalk(l.steps(math.Max(half, t.theta)), t.theta)
	in := inversion{tiltedWalk: fine, period: 18 * t.width}
	s := 2 * math.Pi / in.period
	in.value = 0.5 / (t.theta * t.theta)
	in.nodes(s, s, half)
	in.rest += math.Exp(-flat) * 2 / (half - s)
	return math.Exp(fine.logM) / math.Pi * (s*in.value + in.rest) * (1 + t.margin())
}

// latticeSize is J, the number of frequencies that lattice sums over.
const latticeSize = 1 << 17

// lattice returns E[(ΣG)₊] for G rounded to a grid of step h, from the finite sum that the inversion becomes on a
// lattice. With T = Jh,
//
//	E[X₊] ≤ (1/J)·Σ_j E[e^{ζX}]·κ(ζ),   ζ = θ+2πij/T,   κ(ζ) = Σ_{i≥1} hi·e^{−hiζ} = h·e^{−hζ}/(1−e^{−hζ})²
//
// As in [tiltedWalk.invert], the right side exceeds the left by aliases, which are positive. Rounding adds at most h²/4
// to the variance of each of the n steps, and raises δ by about a relative θ²nh²/12: at most 1e-5 where lattice is
// used. Values of G below both −40/θ and −100 are raised to the smaller of the two. That can only raise δ, by some
// e^-40, and allows a finer grid. The tilt is kept below 1/(10h): a larger tilt resolves nothing finer than the grid,
// and rounding would dominate the sum. The rounding errors of the terms, at most 10⁻¹⁴ of their absolute values for
// each of the n steps, are added.
func (l *laplaceLaw) lattice(t *tiltedWalk) float64 {
	lowest := math.Max(l.low(), -math.Max(40/t.theta, 100))
	h := math.Max(18*t.width, 2*(l.high()-lowest)) / latticeSize
	theta := math.Min(t.theta, 0.1/h)
	w, first := l.grid(h, lowest)
	total := 0.0
	phi := make([]complex128, latticeSize)
	for j := range w {
		w[j] *= math.Exp(theta * h * (first + float64(j)))
		total += w[j]
		phi[(j+int(first)+latticeSize)%latticeSize] += complex(w[j], 0)
	}
	Transform(phi)
	sum, size := 0.0, 0.0
	for j, p := range phi[:latticeSize/2+1] {
		term, most := latticeTerm(l.n, p/complex(total, 0), h, theta, 2*math.Pi*float64(j)/latticeSize)
		if j > 0 && j < latticeSize/2 {
			term, most = 2*term, 2*most
		}
		sum, size = sum+term, size+most
	}
	return (sum*(1+1e-8) + size*1e-14*(l.n+20)) / latticeSize * math.Exp(l.n*math.Log(total))
}

// latticeTerm returns the real part of φⁿ·κ(ζ) and its absolute value, angle being y·h.
func latticeTerm(n float64, phi complex128, h, theta, angle float64) (term, most float64) {
	size := n * math.Log(math.Hypot(real(phi), imag(phi)))
	if size < -negligible-10 {
		term = math.Exp(-negligible-10) * h / (h * theta * h * theta)
		return term, term
	}
	decay := math.Exp(-h * theta)
	a, b := -math.Expm1(-h*theta)+decay*2*math.Sin(angle/2)*math.Sin(angle/2), decay*math.Sin(angle) // 1−e^{−hζ} = a+ib
	turn := n*math.Atan2(imag(phi), real(phi)) - angle - 2*math.Atan2(b, a)
	most = h * decay * math.Exp(size) / (a*a + b*b)
	return most * math.Cos(turn), most
}

// grid returns w, the masses of G after raising values to lowest and splitting them between multiples of h. first is
// the multiple that w[0] belongs to. With C(x) = E[(G−x)₊], the masses are the second differences of C divided by h.
// Below lowest, C falls with slope −(mass of the blanket).
func (l *laplaceLaw) grid(h, lowest float64) (w []float64, first float64) {
	first = math.Floor(lowest/h) - 1
	last := math.Ceil(l.high()/h) + 1
	here := l.call(first * h)
	before := here + h*l.shrink
	for j := first; j <= last; j++ {
		after := l.call((j + 1) * h)
		w = append(w, math.Max(0, (before-2*here+after)/h))
		before, here = here, after
	}
	w[int(-first)] += -math.Expm1(-l.eps0 / 2)
	return w, first
}

// call returns E[(G−x)₊], counting only the case that the user's message comes from the blanket.
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
