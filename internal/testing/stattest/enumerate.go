package stattest

import "math"

// This file computes the exact privacy loss of tiny shuffled mechanisms, independently of the accountant. It uses that
// a verifier of shuffled messages sees only a histogram: the sum of the clients' histograms. Tests of the protocols and
// the errata of papers use it.

// Law is a distribution of histograms. A key has one byte per kind of message: how often it occurs.
type Law map[string]float64

// Add returns the distribution of the sum of two independent histograms.
func (l Law) Add(o Law) Law {
	out := make(Law, len(l))
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

// Mix adds weight times the distribution o to l.
func (l Law) Mix(weight float64, o Law) {
	for key, p := range o {
		l[key] += weight * p
	}
}

// NoMessage is the distribution for a client that sends no message, with the given number of kinds.
func NoMessage(kinds int) Law { return Law{string(make([]byte, kinds)): 1} }

// OneMessage is the distribution for one message of the given kind.
func OneMessage(kinds, kind int) Law {
	h := make([]byte, kinds)
	h[kind] = 1
	return Law{string(h): 1}
}

// HockeyStick returns the hockey-stick divergence Σ (P − e^ε·Q)₊, which is the δ at ε.
func HockeyStick(p, q Law, eps float64) (delta float64) {
	for key, mass := range p {
		delta += math.Max(0, mass-math.Exp(eps)*q[key])
	}
	return delta
}

// Worst returns the δ of shuffled reports at eps: the largest hockey-stick divergence over all inputs of the given
// number of clients and all changes of one of them. laws has the histogram's distribution for each input.
func Worst(laws []Law, users int, eps float64) (worst float64) {
	kinds := 0
	for key := range laws[0] {
		kinds = len(key)
	}
	var walk func(from, left int, others Law)
	walk = func(from, left int, others Law) {
		if left > 0 {
			for i := from; i < len(laws); i++ {
				walk(i, left-1, others.Add(laws[i]))
			}
			return
		}
		seen := make([]Law, len(laws))
		for i := range laws {
			seen[i] = others.Add(laws[i])
		}
		for i := range laws {
			for j := range laws {
				worst = math.Max(worst, HockeyStick(seen[i], seen[j], eps))
			}
		}
	}
	walk(0, users-1, NoMessage(kinds))
	return worst
}

// Vectors returns all vectors of length d with entries 0 to k.
func Vectors(d int, k uint64) [][]uint64 {
	out := [][]uint64{nil}
	for range d {
		var next [][]uint64
		for _, v := range out {
			for x := range k + 1 {
				next = append(next, append(append([]uint64(nil), v...), x))
			}
		}
		out = next
	}
	return out
}
