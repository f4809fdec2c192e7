package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// If the composed loss overflows, the bound must be δ = 1: here a loss of 20, observed 65536 times.
func TestLossesBeyondAllNumbers(t *testing.T) {
	seen := []compose.Observation{response(2/(1+math.Exp(20)), 1<<16)}
	for _, eps := range []float64{1, 100, 1e4, 1e5} {
		require.Equal(t, 1.0, compose.Delta(seen, eps, 1e-3), "ε = %v", eps)
	}
	_, err := compose.Epsilon(seen, 1e-3)
	require.ErrorContains(t, err, "delta")
}

// Masses that sum to 2 overflow when raised to the power 10⁴. Then δ must be 1.
func TestMassesBeyondAllNumbers(t *testing.T) {
	twice := compose.LawOfOutcomes(func(add func(p, q float64)) { add(1.5, .5) })
	seen := []compose.Observation{twice.Observation(10_000)}
	for _, eps := range []float64{.1, 1, 10, 100, 1000, 5000} {
		require.Equal(t, 1.0, compose.Delta(seen, eps, 1e-3), "ε = %v", eps)
	}
	eps, err := compose.Epsilon(seen, 1e-3)
	if err == nil {
		require.GreaterOrEqual(t, eps, 10_000*math.Log(3))
	}
}

// For many epochs ε must be above the mean of their total loss, and close to it. A bug once gave a sixth of it under
// rule theorem1 for two values.
func TestEpsilonIsAboveTheMeanLoss(t *testing.T) {
	for _, r := range []blankets{
		{accountant.Theorem1, 2, 100_000, .5}, {accountant.Theorem1, 16, 100_000, 1}, {accountant.Exact, 16, 10_000, 1},
	} {
		law, last := r.law(t), 0.0
		for _, epochs := range []uint64{30, 365, 1500} {
			eps, err := compose.Epsilon([]compose.Observation{law.Observation(epochs)}, float64(epochs)*1e-6)
			require.NoError(t, err)
			require.Less(t, eps, float64(epochs)*r.eps)
			require.GreaterOrEqual(t, eps, float64(epochs)*meanLoss(law), "%+v, %d epochs", r, epochs)
			require.Greater(t, eps, last, "%+v, %d epochs", r, epochs)
			last = eps
		}
	}
}

// meanLoss returns a lower bound on the mean of a symmetric pair's finite losses: ∫ δ(ε)(1+e^{−ε})dε, where δ excludes
// infinite losses.
func meanLoss(law *compose.Law) (mean float64) {
	const step = 1e-3
	for eps := step; eps < 3; eps += step {
		mean += step * (law.Delta(eps) - law.Delta(50)) * (1 + math.Exp(-eps))
	}
	return mean
}

// A curve that returns NaN must give the law that dominates everything, never a law without loss.
func TestCurvesThatAreNoNumbers(t *testing.T) {
	nan := func(float64) float64 { return math.NaN() }
	for name, law := range map[string]*compose.Law{
		"curve":      compose.LawOf(nan, 1),
		"slow curve": compose.LawOfSlow(nan, 1),
		"+Inf":       compose.LawOf(func(float64) float64 { return math.Inf(1) }, 1),
		"top":        compose.LawOf(func(float64) float64 { return .1 }, math.NaN()),
		"outcomes":   compose.LawOfOutcomes(func(add func(p, q float64)) { add(math.NaN(), .1) }),
		"infinite":   compose.LawOfOutcomes(func(add func(p, q float64)) { add(math.Inf(1), 0) }),
		"masses":     compose.LawOfOutcomes(func(add func(p, q float64)) { add(1e9, 1e8) }),
	} {
		for _, eps := range []float64{0, 1, 50} {
			require.Equal(t, 1.0, law.Delta(eps), "%s at ε = %v", name, eps)
		}
		read, err := compose.DecodeLaw(law.Encode())
		require.NoError(t, err, name)
		require.Equal(t, law, read, name)
	}
	half := compose.LawOf(func(eps float64) float64 { // NaN beyond .5: read as .1, since curves never rise
		if eps > .5 {
			return math.NaN()
		}
		return .1
	}, 1)
	require.InEpsilon(t, .1, half.Delta(3), 1e-3)
	for _, seen := range []compose.Observation{{Delta: nan, Count: 1}, compose.LawOf(nan, 1).Observation(3)} {
		require.Equal(t, 1.0, compose.Delta([]compose.Observation{seen}, .5, 1e-6))
		_, err := compose.Epsilon([]compose.Observation{seen}, 1e-6)
		require.ErrorContains(t, err, "delta")
	}
	pair, err := compose.FromCurve(func(float64) (float64, error) { return math.NaN(), nil }, 1, 10)
	require.NoError(t, err)
	require.Equal(t, 1.0, pair.Delta(50))
}
