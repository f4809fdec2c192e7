package accountant

import "math"

// othersDelta returns δ(ε) of rule [Others]: two-valued randomized response with nobody's blanket bit revealed, at
// the worst inputs of the other users. It is rounded up. docs/proofs/two-valued.md has the proofs.
//
// A report is the user's bit, flipped with probability f = γ/2. Shuffled reports reveal only their number of ones. If c
// of the N = n−1 other users hold 1, that number is D_c + Ber(1−f) or D_c + Ber(f), depending on the target's bit,
// where
//
//	D_c = Bin(c, 1−f) + Bin(N−c, f)
//	δ_c = max_T a·Pr[D_c ≥ T−1] − b·Pr[D_c ≥ T],   a = 1−f−e^ε·f,  b = e^ε·(1−f)−f         (1)
//
// and δ is the maximum over c. It lies near c = N, where the upper tail is the lightest, but not always at c = N,
// because T is a whole number. So othersDelta covers all c by intervals. For an interval N−v ≤ c ≤ N−u it assumes that
// the adversary also learns the flips of v−u users. N−v ones and u zeros then remain, which bounds δ for all c of the
// interval.
func othersDelta(gamma float64, users uint64, eps float64) float64 {
	l := newTwoValued(gamma/2, eps)
	n, worst := float64(users-1), 0.0
	for u := 0.0; u <= n; {
		v := math.Min(n, u+othersWidth(n, u)-1)
		if l.ceiling(n-v, u) > worst {
			worst = math.Max(worst, l.delta(n-v, u))
		}
		u = v + 1
	}
	return worst
}

// othersWidth returns how many values of c the interval from c = n−u downward covers. The width is a fiftieth of the
// distance u from the corner, but between 10⁻⁶·n and 10⁻³·n. The adversary is given that share of the noise. Below 2000
// users the width is 1 and no noise is given away. The width does not depend on γ or ε, so δ falls with both.
func othersWidth(n, u float64) float64 {
	return math.Max(1, math.Floor(math.Max(1e-6*n, math.Min(u/50, 1e-3*n))))
}

// twoValued evaluates δ_c, formula (1) of othersDelta. With e^θ = b/a and t the law of D tilted by e^θj,
//
//	a·Pr[D=j−1] − b·Pr[D=j] = b·E[e^θD]·e^−θj·(t_{j−1} − t_j)                              (2)
//
// so the best T is one more than the mode of t, which is less than 1 from its mean [Darroch 1964].
type twoValued struct {
	b, theta float64
	one      tiltedFlip // Flip of a user's 1, which lowers the count by 1.
	zero     tiltedFlip // Flip of a user's 0, which raises the count by 1.
	grid     *twoValuedGrid
}

// tiltedFlip is Ber(f) tilted by e^±θj: its probability and variance, and ln E[e^±θBer(f)].
type tiltedFlip struct{ p, variance, log float64 }

func newTiltedFlip(f, theta float64) tiltedFlip {
	log := math.Log1p(f * math.Expm1(theta))
	p := f * math.Exp(theta-log)
	return tiltedFlip{p, p * (1 - f) * math.Exp(-log), log}
}

// twoValuedEdge returns the coefficients a and b of δ_c (formula (1) of othersDelta) for ε ≤ ε₀, where a ≥ 0. It rounds
// a up and b−a down, by more than their errors; both raise δ.
func twoValuedEdge(f, eps float64) (a, b float64) {
	grow := math.Expm1(eps) // b−a
	rest := 1 - 2*f         // Exact for f ≥ ¼: a keeps its digits near f = ½.
	a = math.Max(0, rest-f*grow) + 8*ulp*(rest+f*grow)
	return a, a + grow*(1-8*ulp)
}

func newTwoValued(f, eps float64) *twoValued {
	a, b := twoValuedEdge(f, eps)
	l := &twoValued{b: b, theta: math.Log1p((b - a) / a)}
	l.one, l.zero = newTiltedFlip(f, -l.theta), newTiltedFlip(f, l.theta)
	return l
}

// moments returns mean and variance of D−c under the tilt.
func (l *twoValued) moments(ones, zeros float64) (mean, variance float64) {
	return zeros*l.zero.p - ones*l.one.p, zeros*l.zero.variance + ones*l.one.variance
}

// scale returns b·E[e^θ(D−T)] for T = ones + s.
func (l *twoValued) scale(ones, zeros, s float64) float64 {
	return l.b * math.Exp(ones*l.one.log+zeros*l.zero.log-l.theta*s)
}

// ceiling returns an upper bound on delta in constant time. The sum of t_{j−1} − t_j (see (2) at twoValued) over j ≥ T
// is at most t_{T−1}, and no tilted probability of D is above 0.627/σ.
func (l *twoValued) ceiling(ones, zeros float64) float64 {
	mean, variance := l.moments(ones, zeros)
	return l.scale(ones, zeros, mean) * math.Min(1, 0.627/math.Sqrt(variance)) * (1 + 1e-9)
}

// delta returns δ_c (formula (1) of othersDelta) for the given numbers of ones and zeros, rounded up. It sums (2) of
// twoValued over j ≥ T:
//
//	Σ_{0≤l<L} e^−θl·(t_{T+l−1} − t_{T+l}) = (1/J)·Σ_k φ(y)·e^−iyT·(e^iy−1)·Σ_l e^{−(θ+iy)l},  y = 2πk/J
//
// with φ the transform of t and J = 2L. Tails of t beyond L−4 from its mean bound the terms that the sum over l omits
// and the aliases that the sum over k adds: below 2·e^−60 by Bernstein's inequality. Nodes with |φ| < e^−50 are not
// evaluated; they contribute less than 4·e^−50.
func (l *twoValued) delta(ones, zeros float64) float64 {
	mean, variance := l.moments(ones, zeros)
	reach := 24 + math.Sqrt(400+120*variance) // x + 4, where x²/(2(σ²+x/3)) ≥ 60
	if l.grid == nil || reach > l.grid.half || reach < l.grid.half/4 {
		l.grid = newTwoValuedGrid(l, reach)
	}
	s := math.Round(mean) + 1
	sums := l.grid.sums(ones, zeros, s)
	best := 0.0
	for i, sum := range sums {
		at := s + float64(i-1)
		best = math.Max(best, l.scale(ones, zeros, at)*(sum+5*math.Exp(-50)))
	}
	width := math.Sqrt(variance)
	return best * (1 + 1e-11 + 4e-15*width*(1+l.theta*width))
}

// twoValuedGrid caches the nodes of the transform of one length J, for all numbers of ones and zeros. Nodes are added
// as needed.
type twoValuedGrid struct {
	l     *twoValued
	half  float64 // L
	nodes []twoValuedNode
}

// twoValuedNode is one y = 2πk/J, 1 ≤ k ≤ L.
type twoValuedNode struct {
	y         float64
	turn      complex128 // e^iy
	kernel    complex128 // (e^iy−1)·Σ_{0≤l<L} e^{−(θ+iy)l}, twice for k < L to include the mirror image
	one, zero logTransform
}

func newTwoValuedGrid(l *twoValued, reach float64) *twoValuedGrid {
	half := 32.0
	for half < reach {
		half *= 2
	}
	return &twoValuedGrid{l: l, half: half}
}

// sums returns the sum over k (see twoValued.delta) for each T = ones + s + (−1, 0, 1).
func (g *twoValuedGrid) sums(ones, zeros, s float64) (out [3]float64) {
	for k := 1; k <= int(g.half); k++ {
		if k > len(g.nodes) {
			g.nodes = append(g.nodes, g.node(float64(k)))
		}
		x := &g.nodes[k-1]
		size := ones*x.one.size + zeros*x.zero.size
		if size < -50 {
			break
		}
		sin, cos := math.Sincos(zeros*x.zero.angle - ones*x.one.angle - s*x.y)
		size = math.Exp(size)
		term := complex(size*cos, size*sin) * x.kernel
		out[0] += real(term * x.turn)
		out[1] += real(term)
		out[2] += real(term)*real(x.turn) + imag(term)*imag(x.turn) // times e^−iy
	}
	for i := range out {
		out[i] /= 2 * g.half
	}
	return out
}

func (g *twoValuedGrid) node(k float64) twoValuedNode {
	y := math.Pi * k / g.half
	sin, cos := math.Sincos(y)
	fall := 2 * math.Sin(y/2) * math.Sin(y/2) // 1 − cos y
	shrink := math.Exp(-g.l.theta)
	all := -math.Expm1(-g.l.theta * g.half) // 1 − e^{−(θ+iy)L}, where e^−iyL is ±1
	if math.Mod(k, 2) == 1 {
		all = 2 - all
	}
	if k < g.half {
		all *= 2
	}
	below := complex(-math.Expm1(-g.l.theta)+shrink*fall, shrink*sin) // 1 − e^{−θ−iy}
	return twoValuedNode{
		y: y, turn: complex(cos, sin), kernel: complex(-all*fall, all*sin) / below,
		one: g.l.one.transform(sin, fall), zero: g.l.zero.transform(sin, fall),
	}
}

// logTransform is the real and the imaginary part of ln E[e^iyB] of a flip B.
type logTransform struct{ size, angle float64 }

// transform returns ln E[e^iyB] of the flip, given sin = sin y and fall = 1 − cos y. A fair flip's transform is 0 at y
// = π. transform still returns a finite logarithm, because callers may multiply it by 0.
func (t tiltedFlip) transform(sin, fall float64) logTransform {
	along, across := 1-t.p*fall, t.p*sin
	size := -1000.0
	switch lost := 2 * t.variance * fall; {
	case lost < 0.5:
		size = math.Log1p(-lost) / 2
	case along != 0 || across != 0: // Here log1p(−lost) would lose digits.
		size = math.Log(math.Hypot(along, across))
	}
	return logTransform{math.Max(-1000, size), math.Atan2(across, along)}
}
