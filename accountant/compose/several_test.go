package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeveralReportsInOneBatch checks the figures of docs/proofs/sets.md: D messages of one person in one batch, whose
// cells have independent Gaussian noise of σ = 9.3 that is cut at ±53.
func TestSeveralReportsInOneBatch(t *testing.T) {
	const cut = 53
	noise := make([]float64, 2*cut+1)
	sum := 0.0
	for i := range noise {
		noise[i] = math.Exp(-float64((i-cut)*(i-cut)) / 2 / 9.3 / 9.3)
		sum += noise[i]
	}
	at := func(i int) float64 {
		if i < 0 || i >= len(noise) {
			return 0
		}
		return noise[i] / sum
	}
	// The pair (Z + d, Z') against (Z, Z' + d): δ(ε) by enumeration.
	delta := func(d int, eps float64) (sum float64) {
		for x := range len(noise) + d {
			for y := range len(noise) + d {
				sum += math.Max(0, at(x-d)*at(y)-math.Exp(eps)*at(x)*at(y-d))
			}
		}
		return sum
	}
	require.Less(t, delta(7, 4.75), 1e-5)
	require.Greater(t, delta(7, 4.65), 1e-5)
	require.InDelta(t, .0155, delta(31, 200), 5e-4, "the value is certain")

	// 31 epochs: Gaussian noise with μ² = 31·2/σ².
	mu := math.Sqrt(62) / 9.3
	gauss := func(eps float64) float64 {
		tail := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
		return tail(eps/mu-mu/2) - math.Exp(eps)*tail(eps/mu+mu/2)
	}
	require.Less(t, gauss(3.65), 1e-5)
	require.Greater(t, gauss(3.57), 1e-5)
}
