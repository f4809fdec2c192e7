package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// TestBelow compares all pairs of some laws: Below must report true exactly if the first curve is nowhere above the
// second, at many ε.
func TestBelow(t *testing.T) {
	laws := []*compose.Law{
		blankets{accountant.Exact, 16, 10_000, 1}.law(t), blankets{accountant.Exact, 16, 10_000, 1.05}.law(t),
		blankets{accountant.Exact, 3, 1000, 1}.law(t), blankets{accountant.Exact, 3, 50, 2}.law(t),
		compose.LawOf(func(eps float64) float64 { delta, _ := compose.GaussianDelta(.09, eps); return delta }, 3),
		compose.LawOf(func(eps float64) float64 { return max(0, 1e-3-eps/100) }, .1),
	}
	for _, law := range laws[:2] {
		laws = append(laws, law.WithTail())
	}
	yes, no := 0, 0
	for i, one := range laws {
		for j, other := range laws {
			worst := math.Inf(-1)
			for eps := -3.0; eps < 12; eps += .0037 {
				worst = max(worst, one.Delta(eps)-other.Delta(eps)*(1+1e-13))
			}
			if one.Below(other) {
				yes++
				require.LessOrEqual(t, worst, 1e-17, "%d, %d", i, j)
			} else {
				no++
				at := -1.0
				for eps := 0.0; eps < 14 && at < 0; eps += .00093 {
					if one.Delta(eps) > other.Delta(eps) {
						at = eps
					}
				}
				require.GreaterOrEqual(t, at, 0.0, "%d, %d: it is nowhere above", i, j)
			}
		}
	}
	require.Greater(t, yes, len(laws), "not only each below itself")
	require.Greater(t, no, 5)
	twice, err := laws[0].Copies(2)
	require.NoError(t, err)
	require.True(t, laws[0].Below(twice))
	require.False(t, twice.Below(laws[0]))
	require.True(t, laws[0].Below(laws[1].WithTail()), "less noise, but for where grids end")
}
