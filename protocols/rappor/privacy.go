package rappor

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// RuleOthers bounds δ over all values that the other clients can hold.
//
// When one client's value changes from x to x', both above 0, the counts of two bits change, and these counts are
// independent. At one bit, let u of the N = n_min-1 other clients hold a one. The count is u plus
//
//	D_u = Bin(N-u, f) - Bin(u, f)                                                  (4)
//
// plus the client's own bit. The pair of distributions to tell apart is
//
//	E_u: D_u + Ber(1-f)  against  D_u + Ber(f).                                     (5)
//
// At bit x the pair is E_u. At bit x' it is E_v with its two sides exchanged, which is the mirror image of E_{N-v}. So
// the divergence is that of E_u ⊗ E_w for some u and w in 0..N, in either direction. If x or x' is 0, only one bit
// changes, and the divergence is that of E_u alone.
//
// One pair bounds all u in an interval [lo, hi]. To see this, give the adversary the flips of the hi-lo clients that
// may or may not hold a one. Bin(N-hi, f) - Bin(lo, f) remains as noise, and the adversary knows no less than before.
// So finitely many pairs dominate all E_u. One pair dominates these in turn: the pair whose curve δ(ε), over all real
// ε, is the maximum of their curves. It exists because the maximum is convex in e^ε. That pair is composed with itself
// for two bits. The intervals are narrow near u = 0 and u = N, where the worst case is, and give away 0.2 % of the
// noise there. The result is n·f = 50.3 at ε = 1, δ = 10⁻⁶, where 50.0 is exact. If n·f is in the thousands, the
// intervals are up to 12 times wider, to bound the time, and f is some percent too large.
//
// In every case tried the worst case is exactly u = w = N. There the count is u minus Bin(N, f), whose lower tail is
// the lightest. But for the curve of a single bit, u = N is not the worst at every ε, because the counts are whole. So
// the bound uses intervals and not u = w = N alone.
const RuleOthers = "others"

// CheckClaim implements [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	g, err := newTarget(m.task)
	if err != nil {
		return err
	}
	flips, err := g.flipsDelta(m.f.Float64(), min(m.k, 2))
	if err != nil {
		return err
	}
	delta := flips + g.overflow(m.k, m.b, m.f.Float64())
	if !(delta <= g.delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta.String(),
			"at least "+decimal.Up(delta, 7)+", the delta that rule others derives at epsilon "+
				m.task.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(m.task, m.Law)
}

// Law implements [protocols.Mechanism.Law]. Its curve is the bound of [RuleOthers] at every ε, plus the cost of flips
// that do not fit the slots.
func (m *Mechanism) Law() (*compose.Law, error) {
	g, err := newTarget(m.task)
	if err != nil {
		return nil, err
	}
	f := m.f.Float64()
	pairs, err := dominatingPairs(float64(g.users-1), f)
	if err != nil {
		return nil, err
	}
	local := localEpsilon(f)
	flips := func(eps float64) float64 { return highest(pairs, math.Exp(eps)) }
	if m.k >= 2 {
		flips, local = newEnvelope(pairs, local).curve, 2*local
	}
	curve := func(eps float64) float64 {
		at := g
		at.eps = eps
		return min(1, flips(eps)*(1+1e-9)+slack+at.overflow(m.k, m.b, f))
	}
	return compose.LawOf(curve, min(local, compose.Top(flips))), nil
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0].
func (m *Mechanism) Epsilon0() float64 {
	if m.b < m.k {
		return math.Inf(1)
	}
	return float64(min(m.k, 2)) * localEpsilon(m.f.Float64())
}

// localEpsilon returns ln((1−f)/f), the local ε of one flipped bit, rounded up. It computes with the difference 1−2f,
// which keeps its digits as f nears ½. The quotient (1−f)/f nears 1 there and would lose them.
func localEpsilon(f float64) float64 { return math.Log1p((1-2*f)/f) * (1 + 1e-15) }

// target is the claim that the parameters must prove.
type target struct {
	eps, delta float64
	users, all uint64 // n_min, and the number n of all clients.
}

// minDelta is the least δ of a claim for which float64 arithmetic is accurate enough here. slack exceeds the rounding
// errors of a δ.
const (
	minDelta = 1e-12
	slack    = 1e-15
)

func newTarget(t *task.Task) (target, error) {
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	if delta < minDelta {
		return target{}, invalid.Field("claim.delta", t.Claim.Delta.String(), "at least 1e-12 for protocol rappor")
	}
	return target{eps, delta, t.Batch.Min, t.Batch.Size}, nil
}

// overflow returns formula (3) of the package comment: the cost in δ of redrawing flips until they fit b slots. For b
// up to the mean number of flips, where τ may be near 1/2, it takes τ as 1. Above the mean the terms of the tail fall
// from the first on. It computes them by logarithms, because Pr[Bin(k, f) = 0] may be too small for a float64.
func (g target) overflow(k, b uint64, f float64) float64 {
	if b >= k {
		return 0
	}
	tail, from := 1.0, float64(b)
	if n := float64(k); from > n*f {
		whole, _ := math.Lgamma(n + 1)
		in, _ := math.Lgamma(from + 1)
		out, _ := math.Lgamma(n - from + 1)
		p := math.Exp(whole - in - out + from*math.Log(f) + (n-from)*math.Log1p(-f)) // Pr[Bin(k, f) = b]
		tail = 0x1p-1000                                                             // not 0, in case p underflows
		for j := from; j <= n; j++ {
			tail += p
			p *= (n - j) / (j + 1) * f / (1 - f)
		}
	}
	return (1 + math.Exp(g.eps)) * float64(g.all) * tail * (1 + 1e-9)
}

// leastFlip returns the smallest flip probability f, to a relative 10⁻⁴, that proves the target if a new value changes
// this number of bits.
func (g target) leastFlip(bits uint64) (randomizer.Rational, error) {
	budget := g.delta * (1 - overflowShare)
	proves := func(f randomizer.Rational) (bool, error) {
		delta, err := g.flipsDelta(f.Float64(), bits)
		return delta <= budget, err
	}
	// Start from one flip among all clients, because evaluations with few flips are fast.
	hi := min(1/float64(g.users), 0.25)
	for {
		ok, err := proves(dyadic(hi))
		if err != nil {
			return randomizer.Rational{}, err
		}
		if ok {
			break
		}
		hi = 0.5 - (0.5-hi)*(0.5-hi)/0.5 // Doubles a small f and squares the distance to 1/2.
		if hi > 0.5-1e-6 {
			return randomizer.Rational{},
				invalid.Field("epsilon", decimal.Format(g.eps, -1),
					"more, or more honest users: no flip probability below 1/2 proves this claim")
		}
	}
	lo := hi / 2.2 // An f that proves too little, or one below the first try.
	for hi-lo > 1e-4*lo {
		mid := math.Sqrt(lo * hi)
		ok, err := proves(dyadic(mid))
		if err != nil {
			return randomizer.Rational{}, err
		}
		if ok {
			hi = mid
		} else {
			lo = mid
		}
	}
	return dyadic(hi), nil
}

// dyadic returns f in (0, 1) rounded up to 32 significant bits.
func dyadic(f float64) randomizer.Rational {
	frac, exp := math.Frexp(f)
	shift := min(32-exp, 62)
	return randomizer.NewRational(int64(math.Ceil(math.Ldexp(frac, exp+shift))), 1<<shift)
}

// flipsDelta returns the bound on δ of [RuleOthers] if one changed value changes one bit or two.
func (g target) flipsDelta(f float64, bits uint64) (float64, error) {
	pairs, err := dominatingPairs(float64(g.users-1), f)
	if err != nil {
		return 0, err
	}
	if bits == 1 {
		return min(1, highest(pairs, math.Exp(g.eps))*(1+1e-9)+slack), nil
	}
	e := newEnvelope(pairs, localEpsilon(f))
	return min(1, e.twice(math.Exp(g.eps))*(1+1e-9)+slack), nil
}

// work is about how many products of probabilities one evaluation may compute. It bounds the time.
const work = 1.5e7

// dominatingPairs returns pairs that together dominate E_u, the pair (5) of [RuleOthers], for every u in 0..n.
func dominatingPairs(n, f float64) ([]pair, error) {
	spread := 18 * math.Sqrt(n*f*(1-f)) // Approximate length of D_u's support.
	if spread > 2600 {
		return nil, invalid.Field("params.f", decimal.Format(f, 4),
			"less: at most about 20000 expected flips per bit; take a larger epsilon")
	}
	var edges []float64
	for scale := 1.0; ; scale *= 1.5 {
		edges = intervals(n, scale)
		if cells := spread*spread/8 + 100; float64(len(edges))*cells < work || scale > 8 {
			break
		}
	}
	pairs := []pair{}
	for i, hi := range edges {
		lo := hi // with few clients, each u is an interval of its own
		if n > 64 {
			if i == 0 {
				continue
			}
			lo = edges[i-1]
		}
		if lo > n-hi {
			break // the mirror image of an earlier interval
		}
		noise := difference(binomial(n-hi, f), binomial(lo, f))
		pairs = append(pairs, newPair(noise, f), newPair(mirrored(noise), f))
	}
	return pairs, nil
}

func mirrored(p []float64) []float64 {
	out := make([]float64, len(p))
	for i := range p {
		out[len(p)-1-i] = p[i]
	}
	return out
}

// intervals returns the ends of intervals that cover 0..n. For n of at most 64 each number is an interval. Otherwise
// the intervals near both ends are 0.2 % of n long. Further in, they are 15 % of their distance from the nearer end.
// scale multiplies all lengths.
func intervals(n, scale float64) []float64 {
	if n <= 64 {
		out := []float64{}
		for u := 0.0; u <= n; u++ {
			out = append(out, u)
		}
		return out
	}
	left := []float64{0}
	for d := 0.0; ; {
		d += scale * max(0.002, 0.15*d)
		if d >= 0.5 {
			break
		}
		left = append(left, math.Floor(d*n))
	}
	for i := len(left) - 1; i >= 0; i-- {
		left = append(left, n-left[i])
	}
	return left
}

// pair is two distributions P and Q for which the ratio P_j/Q_j grows with j. It stores their tails: p[i] = Σ_{j≥i}
// P_j, and q[i] likewise.
type pair struct{ p, q []float64 }

// newPair returns the pair noise + Ber(1-f) against noise + Ber(f). Its likelihood ratio grows with the value, because
// noise, a difference of binomials, has a log-concave distribution.
func newPair(noise []float64, f float64) pair {
	x := pair{make([]float64, len(noise)+2), make([]float64, len(noise)+2)}
	for i := len(noise); i >= 0; i-- {
		with, without := 0.0, 0.0
		if i > 0 {
			with = noise[i-1]
		}
		if i < len(noise) {
			without = noise[i]
		}
		x.p[i] = x.p[i+1] + (1-f)*with + f*without
		x.q[i] = x.q[i+1] + f*with + (1-f)*without
	}
	return x
}

// delta returns Σ (P - x·Q)₊, which is δ at e^ε = x. It equals max_i p[i] - x·q[i], because the ratio P_j/Q_j grows
// with j.
func (d pair) delta(x float64) float64 {
	lo, hi := 0, len(d.p)-1
	for lo < hi {
		mid := (lo + hi) / 2
		if d.p[mid]-d.p[mid+1] > x*(d.q[mid]-d.q[mid+1]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return d.p[lo] - x*d.q[lo]
}

// highest returns the largest delta of several pairs at e^ε = x.
func highest(pairs []pair, x float64) (delta float64) {
	for _, d := range pairs {
		delta = max(delta, d.delta(x))
	}
	return delta
}

// cut is the probability, relative to the mode's, below which binomial drops a value; slack covers the dropped values.
const cut = 1e-20

// binomial returns the probabilities of Bin(n, f) for consecutive values, lowest first. It does not return the values,
// because callers do not need them. It computes ratios of neighbours and divides by their sum, which keeps all digits.
func binomial(n, f float64) []float64 {
	mode := math.Min(n, math.Floor((n+1)*f))
	up, down := []float64{}, []float64{}
	for k, p := mode, 1.0; p > cut && k <= n; k++ {
		up = append(up, p)
		p *= (n - k) / (k + 1) * f / (1 - f)
	}
	for k, p := mode, 1.0; k > 0; k-- {
		p *= k / (n - k + 1) * (1 - f) / f
		if p <= cut {
			break
		}
		down = append(down, p)
	}
	out, sum := make([]float64, 0, len(up)+len(down)), 0.0
	for i := len(down) - 1; i >= 0; i-- {
		out = append(out, down[i])
	}
	out = append(out, up...)
	for _, p := range out {
		sum += p
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// difference returns the probabilities of X - Y for independent X and Y with probabilities x and y.
func difference(x, y []float64) []float64 {
	out := make([]float64, len(x)+len(y)-1)
	for j, q := range y {
		at := out[len(y)-1-j:]
		for i, p := range x {
			at[i] += p * q
		}
	}
	return out
}

// envelope is a pair of distributions whose curve is at least the maximum of several curves. Between the points of a
// grid it is linear in x = e^ε, which is no lower than the maximum, because that is convex. At likelihood ratio x[i] it
// holds probability q[i] of Q. P has the further probability beyond where Q has none.
type envelope struct {
	x, q   []float64
	beyond float64
}

// gridPoints is the number of the envelope's grid points on either side of ε = 0.
const gridPoints = 200

// newEnvelope returns the envelope of pairs. maxLoss is the largest privacy loss of these pairs.
func newEnvelope(pairs []pair, maxLoss float64) envelope {
	reach := 0.25
	for reach < maxLoss && highest(pairs, math.Exp(reach)) > 1e-20 {
		reach *= 1.3
	}
	reach = min(reach, maxLoss)
	e := envelope{x: []float64{0}}
	lastX, last, slope := 0.0, 1.0, -1.0 // The curve starts as 1-x at x = 0.
	for i := -gridPoints; i <= gridPoints; i++ {
		x := math.Exp(reach * float64(i) / gridPoints)
		now := highest(pairs, x)
		next := min((now-last)/(x-lastX), 0)
		e.q = append(e.q, max(next-slope, 0))
		e.x = append(e.x, x)
		lastX, last, slope = x, now, max(next, slope)
	}
	e.q = append(e.q, max(-slope, 0))
	e.beyond = last
	return e
}

// curve returns δ at ε = eps of the envelope composed with itself.
func (e envelope) curve(eps float64) float64 { return e.twice(math.Exp(eps)) }

// twice returns δ at e^ε = x of the envelope composed with itself.
func (e envelope) twice(x float64) float64 {
	n := len(e.x)
	p, q := make([]float64, n+1), make([]float64, n+1) // probabilities of P and Q at x[i] and above
	for i := n - 1; i >= 0; i-- {
		p[i], q[i] = p[i+1]+e.x[i]*e.q[i], q[i+1]+e.q[i]
	}
	delta, from := 1-(1-e.beyond)*(1-e.beyond), n
	for i := 1; i < n; i++ { // As the first ratio grows, smaller second ratios suffice for a product above x.
		for from > 0 && e.x[from-1]*e.x[i] > x {
			from--
		}
		delta += e.q[i] * (e.x[i]*p[from] - x*q[from])
	}
	return delta
}
