package compose_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// response returns the observation of one client's binary randomized response without shuffling, a symmetric pair.
func response(gamma float64, count uint64) compose.Observation {
	return compose.Observation{Count: count, Delta: func(eps float64) float64 {
		return max(1-gamma/2-math.Exp(eps)*gamma/2, 0)
	}}
}

// composedResponse returns the exact δ(ε) of n binary randomized responses. The number of true answers determines the
// loss.
func composedResponse(gamma float64, n int, eps float64) (delta float64) {
	p := 1 - gamma/2
	for y := range n + 1 {
		lg := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
		c := math.Exp(lg(n) - lg(y) - lg(n-y))
		delta += c * max(math.Pow(p, float64(y))*math.Pow(1-p, float64(n-y))-math.Exp(eps)*math.Pow(1-p,
			float64(y))*math.Pow(p, float64(n-y)), 0)
	}
	return delta
}

func TestComposedRandomizedResponse(t *testing.T) {
	for _, n := range []int{1, 2, 10, 100} {
		for _, gamma := range []float64{0.5, 0.9, 0.98} {
			for _, eps := range []float64{0.3, 1, 2} {
				want := composedResponse(gamma, n, eps)
				got := compose.Delta([]compose.Observation{response(gamma, uint64(n))}, eps, max(want, 1e-9))
				require.GreaterOrEqual(t, got, want*(1-1e-12), "n=%d γ=%g ε=%g", n, gamma, eps)
				if want > 1e-12 {
					require.Less(t, got, want*1.05, "n=%d γ=%g ε=%g", n, gamma, eps)
				}
			}
		}
	}
}

// A bound made of chords between 65 points must never be below the true curve, and must compose to almost the same δ.
func TestChordsLieJustAboveTheCurve(t *testing.T) {
	noise := compose.NewBinomial(40_000, 0.5)
	few := compose.Chords(noise.Delta, 64, 1e-14)
	for i := range 20_001 {
		eps := float64(i) * 1e-5
		require.GreaterOrEqual(t, few(eps)*(1+1e-12), noise.Delta(eps), "ε=%g", eps)
	}
	for _, count := range []uint64{1, 2, 100} {
		all := compose.Delta([]compose.Observation{{Delta: noise.Delta, Count: count}}, 0.3, 1e-6)
		got := compose.Delta([]compose.Observation{{Delta: few, Count: count}}, 0.3, 1e-6)
		require.GreaterOrEqual(t, got, all*(1-1e-3), "count=%d", count)
		require.Less(t, got, all*1.15+1e-13, "count=%d", count) // 15 % of δ is 1 % of the loss's standard deviation
	}
}

// enumerated returns δ(ε) of counters with binomial noise by enumerating all outcomes. counters[i] has 1 added under
// P if up[i], else under Q.
func enumerated(n []int, p []float64, up []bool, eps float64) float64 {
	var walk func(i int, a, b float64) float64
	walk = func(i int, a, b float64) float64 {
		if i == len(n) {
			return max(a-math.Exp(eps)*b, 0)
		}
		sum := 0.0
		for y := 0; y <= n[i]+1; y++ {
			with, without := mass(n[i], p[i], y-1), mass(n[i], p[i], y)
			if !up[i] {
				with, without = without, with
			}
			sum += walk(i+1, a*with, b*without)
		}
		return sum
	}
	return walk(0, 1, 1)
}

func mass(n int, p float64, y int) float64 {
	if y < 0 || y > n {
		return 0
	}
	c := 1.0
	for i := range y {
		c *= float64(n-i) / float64(i+1)
	}
	return c * math.Pow(p, float64(y)) * math.Pow(1-p, float64(n-y))
}

func TestComposedCountersBoundEveryPattern(t *testing.T) {
	n, p := []int{12, 12, 30}, []float64{0.3, 0.3, 0.15}
	for _, eps := range []float64{0.5, 1, 2, 3} {
		worst := 0.0
		for pattern := range 8 {
			worst = max(worst, enumerated(n, p, []bool{pattern&1 > 0, pattern&2 > 0, pattern&4 > 0}, eps))
		}
		pairs := []compose.Observation{
			{Delta: compose.NewBinomial(12, 0.3).Delta, Count: 2},
			{Delta: compose.NewBinomial(30, 0.15).Delta, Count: 1},
		}
		got := compose.Delta(pairs, eps, worst)
		require.GreaterOrEqual(t, got, worst*(1-1e-12), "ε=%g", eps)
		require.Less(t, got, worst*1.25, "ε=%g: both directions at once cost little", eps)
	}
}

func TestOneCounterIsItsCurve(t *testing.T) {
	b := compose.NewBinomial(1000, 0.2)
	for _, eps := range []float64{0.1, 0.3, 0.6} {
		want := b.Delta(eps)
		require.InEpsilon(t, want, compose.Delta([]compose.Observation{{Delta: b.Delta, Count: 1}}, eps, want), 5e-3)
	}
}

// The δ of many counters with much noise must be close to that of a Gaussian with the same information: δ = Φ(−ε/μ +
// μ/2) − e^ε·Φ(−ε/μ − μ/2), μ² = Σ 1/variance (the central limit theorem of privacy).
func TestManyCountersAreNearlyGaussian(t *testing.T) {
	for _, count := range []uint64{32, 2048, 1 << 15} {
		b := compose.NewBinomial(400*count, 0.25)
		mu := math.Sqrt(float64(count) / b.Variance())
		for _, eps := range []float64{4 * mu, 5 * mu} {
			phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
			want := phi(-eps/mu+mu/2) - math.Exp(eps)*phi(-eps/mu-mu/2)
			got := compose.Delta([]compose.Observation{{Delta: b.Delta, Count: count}}, eps, want)
			require.InEpsilon(t, want, got, 0.15, fmt.Sprintf("%d counters at ε=%g", count, eps))
		}
	}
}

func TestComposedKRRIsAboveOneAndBelowBasic(t *testing.T) {
	curve := func(eps float64) float64 {
		d, err := accountant.KRRDelta(accountant.Revealed, 2, 0.05, 10000, eps)
		require.NoError(t, err)
		return d
	}
	two := compose.Delta([]compose.Observation{{Delta: curve, Count: 2}}, 1, 1e-6)
	require.Greater(t, two, curve(1))
	require.Less(t, two, 2*curve(0.5))
}
