package rappor

import "math"

// FlipsDelta is the bound for one changed bit or two.
func FlipsDelta(eps, f float64, users, bits uint64) (float64, error) {
	return target{eps: eps, delta: 0.5, users: users, all: users}.flipsDelta(f, bits)
}

// Twice returns δ of E_u ⊗ E_w, exactly, for n others.
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
