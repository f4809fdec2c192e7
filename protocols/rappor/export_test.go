package rappor

import "math"

// FlipsDelta returns the bound on δ if a changed value changes one bit or two.
func FlipsDelta(eps, f float64, users, bits uint64) (float64, error) {
	return target{eps: eps, delta: 0.5, users: users, all: users}.flipsDelta(f, bits)
}

// Twice returns the exact δ for two changed bits, of which u and w of n other clients hold a one: E_u ⊗ E_w of
// [RuleOthers].
func Twice(eps, f, n, u, w float64) (delta float64) {
	a := newPair(difference(binomial(n-u, f), binomial(u, f)), f)
	b := newPair(difference(binomial(n-w, f), binomial(w, f)), f)
	for j := range len(b.p) - 1 {
		p, q := b.p[j]-b.p[j+1], b.q[j]-b.q[j+1]
		if p <= 0 {
			continue
		}
		delta += p * max(0, a.delta(math.Exp(eps)*q/p))
	}
	return delta
}

// PartedDelta returns δ if a first relay parts clients: the bound (1) of docs/proofs/slots.md with 2t = δ/200.
func (m *Mechanism) PartedDelta() (float64, error) {
	g, err := newTarget(m.task)
	if err != nil {
		return 1, err
	}
	others, tail := float64(g.users-1), g.delta/400
	left := others - math.Sqrt(2*others*-math.Log(tail))
	if left < 1 {
		return 1, nil
	}
	fewer := target{g.eps, g.delta, 1 + uint64(left), 2*g.users*m.b + 1}
	flips, err := fewer.flipsDelta(m.f.Float64(), min(m.k, 2))
	return min(1, flips+2*tail+fewer.overflow(m.k, m.b, m.f.Float64())), err
}
