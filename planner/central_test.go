package planner_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestCentralErrors: the mean is within 5 standard errors of the truth, and the variance within 4.9 standard deviations
// of the prediction (excess kurtosis of discrete Laplace noise: 3 + 2sinh²(ε/2p), below 3.3).
func TestCentralErrors(t *testing.T) {
	const repeats = 20_000
	for query, bins := range map[task.Query]uint64{task.Count: 0, task.Sum: 0, task.Mean: 0, task.Histogram: 3} {
		d := &task.Task{Query: query, Claim: task.NewClaim("0.7", "1e-6"),
			Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: bins}}
		values := [][]float64{{0}, {1}, {1}, {0}, {1}}
		m, err := planner.NewCentral(d, len(values))
		require.NoError(t, err)
		require.Error(t, m.CheckClaim())
		require.True(t, math.IsInf(m.Epsilon0(), 1))
		for _, fast := range []bool{false, true} {
			out, err := planner.Trial{Repeats: repeats, Fast: fast}.Run(d, m, values)
			require.NoError(t, err)
			for j := range out.Truth {
				require.InDelta(t, out.Truth[j], out.Estimate[j], 5*math.Sqrt(out.PredictedVariance[j]/repeats), query)
				require.InEpsilon(t, out.PredictedVariance[j], out.Variance[j], 4.9*math.Sqrt(5.3/repeats), query)
			}
		}
	}
	_, err := planner.NewCentral(&task.Task{Query: task.Vector, Claim: task.NewClaim("1", "1e-6")}, 1)
	require.ErrorContains(t, err, "query")
}
