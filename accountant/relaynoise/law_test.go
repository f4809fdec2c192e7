package relaynoise_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// outcome holds the probabilities p and q of one outcome under P and Q, the client's two possible values.
type outcome struct{ p, q float64 }

// dummies enumerates the outcomes for a client in cell 0 (P) or cell 1 (Q), if a relay draws each cell's dummies
// independently from table.
func dummies(table []uint64) (out []outcome) {
	sum := 0.0
	for _, w := range table {
		sum += float64(w)
	}
	f := func(z int) float64 {
		if z < 0 || z >= len(table) {
			return 0
		}
		return float64(table[z]) / sum
	}
	for a := range len(table) + 1 { // a messages in cell 0, b in cell 1
		for b := range len(table) + 1 {
			out = append(out, outcome{f(a-1) * f(b), f(a) * f(b-1)})
		}
	}
	return out
}

// coins enumerates the number of ones among three users of binary randomized response. The target's value differs
// between P and Q; the other users' values are 0 and 1.
func coins(gamma float64) (out []outcome) {
	flip := gamma / 2
	of := func(own float64) (counts [4]float64) {
		for bits := range 8 {
			pr := 1.0
			for i, one := range []float64{own, flip, 1 - flip} {
				if bits>>i&1 == 1 {
					pr *= one
				} else {
					pr *= 1 - one
				}
			}
			counts[bits&1+bits>>1&1+bits>>2&1] += pr
		}
		return counts
	}
	p, q := of(flip), of(1-flip)
	for i := range p {
		out = append(out, outcome{p[i], q[i]})
	}
	return out
}

func times(a, b []outcome) (out []outcome) {
	for _, x := range a {
		for _, y := range b {
			out = append(out, outcome{x.p * y.p, x.q * y.q})
		}
	}
	return out
}

func divergence(outcomes []outcome, eps float64) float64 {
	forward, backward := 0.0, 0.0
	for _, o := range outcomes {
		forward += math.Max(0, o.p-math.Exp(eps)*o.q)
		backward += math.Max(0, o.q-math.Exp(eps)*o.p)
	}
	return math.Max(forward, backward)
}

// Composed laws of tasks of different protocols must be at least the δ found by enumerating everything observed. For
// one epoch of relay noise, the law's ε must be at most half a percent above the enumerated ε.
func TestLawsOfProtocolsComposeNotBelowEnumeration(t *testing.T) {
	table := []uint64{1, 3, 9, 20, 14, 5, 2, 1}
	curve, err := relaynoise.New(&task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{table}})
	require.NoError(t, err)
	relays := curve.Law()
	clients, err := compose.KRRLaw(accountant.Others, 2, .4, 3)
	require.NoError(t, err)
	one, two := dummies(table), coins(.4)
	for _, eps := range []float64{.2, .7, 1, 1.6, 2.4, 3} {
		require.GreaterOrEqual(t, relays.Delta(eps), divergence(one, eps)*(1-1e-12), "ε = %v", eps)
		require.LessOrEqual(t, relays.Delta(eps*1.005), divergence(one, eps)*(1+1e-4), "ε = %v", eps)
		for name, c := range map[string]struct {
			seen     []compose.Observation
			outcomes []outcome
		}{
			"two":   {[]compose.Observation{relays.Observation(1), clients.Observation(1)}, times(one, two)},
			"three": {[]compose.Observation{relays.Observation(1), clients.Observation(2)}, times(times(one, two), two)},
			"again": {[]compose.Observation{relays.Observation(2), clients.Observation(1)}, times(times(one, one), two)},
		} {
			truth := divergence(c.outcomes, eps)
			require.GreaterOrEqual(t, compose.Delta(c.seen, eps, 1e-6), truth*(1-1e-12), "%s at ε = %v", name, eps)
		}
	}
}

// New must reject a tilt with a privacy loss above 100: such a loss once overflowed and gave a law without loss. Up to
// 100 the law must bound the loss.
func TestRatiosBeyondAllClaims(t *testing.T) {
	noise := func(weight uint64) *task.Noise {
		return &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1, 1}},
			Tilt: &task.Tilt{Weights: []uint64{0, weight}, Factors: []uint64{2, 1}}}
	}
	_, err := relaynoise.New(noise(2000))
	require.ErrorContains(t, err, "noise.tilt")
	_, err = relaynoise.New(noise(145)) // 145·ln 2 is above 100, the limit
	require.ErrorContains(t, err, "noise.tilt")
	for _, weight := range []uint64{1, 50, 144} {
		curve, err := relaynoise.New(noise(weight))
		require.NoError(t, err)
		law, ratio := curve.Law(), curve.Ratio()
		for _, share := range []float64{0, .3, .9, .999, 1.1} {
			eps := ratio * share
			delta := curve.Delta(eps)
			require.True(t, delta >= 0 && delta <= 1, "weight %d at ε = %v: %v", weight, eps, delta)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-1e-12), "weight %d at ε = %v", weight, eps)
		}
	}
}
