package protocols_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// Each check below compares a mean with its standard error, or a sample variance, whose relative standard deviation is
// √(2/repeats) for the near-normal estimates of 1,000 clients. A check allows 5.7 standard deviations, so it fails by
// chance with probability 1.2·10⁻⁸. All of them together (fewer than 80) do so with less than 10⁻⁶.
const (
	repeats    = 4000 * stattest.Times
	deviations = 5.7
)

func fill(n int, value func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = value(i)
	}
	return out
}

func rows(values []float64) [][]float64 {
	out := make([][]float64, len(values))
	for i := range values {
		out[i] = values[i : i+1]
	}
	return out
}

func TestEstimatesAreUnbiasedWithThePredictedVariance(t *testing.T) {
	const n = 1000
	mixed := func(i int) float64 { return float64(i%97) / 96 }
	cases := []struct {
		name   string
		query  planner.Query
		values []float64
	}{
		{"mean of zeros", planner.Query{Query: task.Mean}, fill(n, func(int) float64 { return 0 })},
		{"mean of ones", planner.Query{Query: task.Mean}, fill(n, func(int) float64 { return 1 })},
		{"mean of a mix", planner.Query{Query: task.Mean}, fill(n, mixed)},
		{"sum of a mix, 80 % honest", planner.Query{Query: task.Sum, Honest: 0.8}, fill(n, mixed)},
		{"count", planner.Query{Query: task.Count}, fill(n, func(i int) float64 { return float64(i % 3 % 2) })},
		{"histogram", planner.Query{Query: task.Histogram, Bins: 5},
			fill(n, func(i int) float64 { return mixed(i) * mixed(i) })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := c.query
			q.Name, q.Hi, q.Batch, q.Epsilon, q.Delta = "test", 1, n, 1, 1e-6
			if q.Honest == 0 {
				q.Honest = 1
			}
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			out, err := planner.Trial{Repeats: repeats}.Run(draft, m, rows(c.values))
			require.NoError(t, err)
			for j, truth := range out.Truth {
				se := math.Sqrt(out.PredictedVariance[j] / repeats)
				require.InDelta(t, truth, out.Estimate[j], deviations*se, "bias of entry %d", j)
				require.InEpsilon(t, out.PredictedVariance[j], out.Variance[j], deviations*math.Sqrt(2.0/repeats),
					"variance of entry %d", j)
			}
		})
	}
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, query := range []task.Query{task.Count, task.Sum, task.Mean} {
		draft, err := planner.Draft(planner.Query{Name: "test", Query: query, Lo: -3, Hi: 5, Batch: 5000, Honest: 0.9,
			Epsilon: 1, Delta: 1e-6})
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		_, at, err := m.Exact(m.Worst().Value)
		require.NoError(t, err)
		require.InEpsilon(t, m.Worst().Variance, at[0], 1e-9)
		lo, hi := draft.Input.Lo.Float64(), draft.Input.Hi.Float64()
		steps := 4000
		if query == task.Count {
			steps = 1
		}
		for i := range steps + 1 {
			_, v, err := m.Exact([]float64{lo + (hi-lo)*float64(i)/float64(steps)})
			require.NoError(t, err)
			require.LessOrEqual(t, v[0], m.Worst().Variance*(1+1e-12))
		}
	}
}
