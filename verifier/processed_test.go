package verifier_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestProcessedIsPossible: a post-processed answer must be possible, and not farther from the truth than the estimate.
// Its interval and band must contain it. They must contain the truth whenever those of the estimate do.
func TestProcessedIsPossible(t *testing.T) {
	const users, runs = 200, 300
	for name, c := range map[string]struct {
		query  planner.Query
		method string
		value  func(i int) float64
	}{
		"count": {planner.Query{Query: task.Count}, "clip", func(int) float64 { return 0 }},
		"mean":  {planner.Query{Query: task.Mean, Lo: -1, Hi: 1}, "clip", func(int) float64 { return 1 }},
		"histogram": {planner.Query{Query: task.Histogram, Hi: 1, Bins: 12}, "simplex",
			func(i int) float64 { return float64(i%3) / 12 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Hi, q.Batch, q.Honest, q.Epsilon, q.Delta = name, 1, users, 1, 1, 1e-6
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			values, truth := make([][]float64, users), []float64(nil)
			for i := range values {
				values[i] = []float64{c.value(i)}
				total, _, err := m.Exact(values[i])
				require.NoError(t, err)
				if truth == nil {
					truth = make([]float64, len(total))
				}
				for j := range total {
					truth[j] += total[j] * protocols.Scale(q.Query, users)
				}
			}
			draw, err := protocols.CapabilitiesOf(m).Fast(values)
			require.NoError(t, err)
			src, moved := randomizer.NewSource(), 0
			for range runs {
				agg, _ := draw(src)
				agg.AddUsers(users)
				a := verifier.AnswerOf(draft, m, agg)
				p := a.Processed
				require.Equal(t, c.method, p.Method)
				sum, before, after := 0.0, 0.0, 0.0
				for j, x := range p.Estimate {
					sum += x
					before, after = before+math.Pow(a.Estimate[j]-truth[j], 2), after+math.Pow(x-truth[j], 2)
					for _, of := range [][2]verifier.Intervals{{a.Interval, p.Interval}, {a.Band, p.Band}} {
						raw, own := of[0][j], of[1][j]
						require.LessOrEqual(t, own[0], x)
						require.GreaterOrEqual(t, own[1], x)
						if raw[0] <= truth[j] && truth[j] <= raw[1] {
							require.LessOrEqual(t, own[0], truth[j]+1e-9)
							require.GreaterOrEqual(t, own[1], truth[j]-1e-9)
						}
					}
				}
				require.LessOrEqual(t, after, before+1e-9)
				if c.method == "simplex" {
					require.InDelta(t, users, sum, 1e-6)
					require.GreaterOrEqual(t, slices.Min(p.Estimate), 0.0)
				}
				if after < before-1e-9 {
					moved++
				}
			}
			require.Greater(t, moved, runs/4, "the true answer is at an edge of the possible ones")
		})
	}
}

// TestSimplexIsNearest: moving a little from one entry to another must not get nearer to x.
func TestSimplexIsNearest(t *testing.T) {
	for _, x := range [][]float64{{3, -1, 8}, {-5, -6, -7, -1}, {10}, {2, 2, 2}, {100, 0, 0}, {0, 0}} {
		got := verifier.Simplex(x, 10)
		far := func(y []float64) (sum float64) {
			for j := range y {
				sum += (x[j] - y[j]) * (x[j] - y[j])
			}
			return sum
		}
		total := 0.0
		for i := range got {
			total += got[i]
			for j := range got {
				if moved := slices.Clone(got); i != j && got[i] >= 1e-3 {
					moved[i] -= 1e-3
					moved[j] += 1e-3
					require.GreaterOrEqual(t, far(moved), far(got), "%v: %v, %v", x, got, moved)
				}
			}
		}
		require.InDelta(t, 10, total, 1e-9, "%v", x)
	}
}
