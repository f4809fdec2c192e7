package figures

import "math"

// This file has exact probabilities of small mechanisms, computed by enumeration and apart from the
// accountant: what the errata rest on.

// logChoose returns ln C(n, k).
func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// binomial returns Pr[Bin(n, p) = k], 0 < p < 1.
func binomial(n, k int, p float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	return math.Exp(logChoose(float64(n), float64(k)) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// law is a distribution of histograms, one byte per kind of message.
type law map[string]float64

// plus returns the law of the sum of independent histograms.
func (l law) plus(o law) law {
	out := make(law, len(l))
	for a, p := range l {
		sum := []byte(a)
		for b, q := range o {
			for i := range sum {
				sum[i] = a[i] + b[i]
			}
			out[string(sum)] += p * q
		}
	}
	return out
}

// reports returns the laws of one report of k-ary randomized response for each value, as histograms.
func reports(k int, gamma float64) (laws []law) {
	for x := range k {
		l := law{}
		for y := range k {
			h := make([]byte, k)
			h[y] = 1
			l[string(h)] += gamma / float64(k)
			if x == y {
				l[string(h)] += 1 - gamma
			}
		}
		laws = append(laws, l)
	}
	return laws
}

// hockeyStick returns Σ (P − e^ε·Q)₊.
func hockeyStick(p, q law, eps float64) (delta float64) {
	for key, mass := range p {
		delta += math.Max(0, mass-math.Exp(eps)*q[key])
	}
	return delta
}

// worst returns the largest divergence over all inputs of users clients with the given laws and all
// substitutions of one client's input.
func worst(laws []law, users int, eps float64) (delta float64) {
	kinds := 0
	for key := range laws[0] {
		kinds = len(key)
	}
	var walk func(from, left int, others law)
	walk = func(from, left int, others law) {
		if left == 0 {
			for _, a := range laws {
				for _, b := range laws {
					delta = max(delta, hockeyStick(others.plus(a), others.plus(b), eps))
				}
			}
			return
		}
		for x := from; x < len(laws); x++ {
			walk(x, left-1, others.plus(laws[x]))
		}
	}
	walk(0, users-1, law{string(make([]byte, kinds)): 1})
	return delta
}
