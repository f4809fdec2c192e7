package vectorgrid_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// As in vectorsum's tests, fewer than 80 checks allow 5.7 standard deviations each. Together they fail by chance once
// in 10⁶ runs.
const (
	repeats    = 2000 * stattest.Times
	deviations = 5.7
)

func open(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	q.Name, q.Protocol = "test", vectorgrid.Name
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	return draft, m
}

func TestEstimatesAreUnbiasedWithThePredictedVariance(t *testing.T) {
	const n = 400
	for name, q := range map[string]planner.Query{
		"mean, d = 2":              {Query: task.VectorMean, Dim: 2, Honest: 1},
		"mean, d = 3, 80 % honest": {Query: task.VectorMean, Dim: 3, Honest: 0.8, Params: planner.Params{"r": 2}},
		"sum, d = 2":               {Query: task.Vector, Dim: 2, Lo: -1, Hi: 3, Honest: 1},
		"sum, d = 1, 80 % honest":  {Query: task.Vector, Dim: 1, Lo: 0, Hi: 1, Honest: 0.8},
		"mean, r = 4, clipped": {Query: task.VectorMean, Dim: 2, Honest: 1, Clip: true,
			Params: planner.Params{"r": 4}},
		"mean, d = 1, few honest": {Query: task.VectorMean, Dim: 1, Honest: 0.25},
		"sum, d = 4, 80 % honest, 1": {Query: task.Vector, Dim: 4, Lo: 0, Hi: 1, Honest: 0.8,
			Params: planner.Params{"r": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q.Batch, q.Epsilon, q.Delta = n, 2, 1e-6
			draft, m := open(t, q)
			values := make([][]float64, n)
			for i := range values {
				for j := range q.Dim {
					x := math.Sin(float64(i)/7 + float64(j)) // sin² of shifted arguments
					if q.Query == task.Vector {
						x = q.Lo + (q.Hi-q.Lo)*(1+x)/2
					} else if !q.Clip {
						x /= math.Sqrt(float64(q.Dim))
					}
					values[i] = append(values[i], x)
				}
			}
			out, err := planner.Trial{Repeats: repeats}.Run(draft, m, values)
			require.NoError(t, err)
			for l, truth := range out.Truth {
				se := math.Sqrt(out.PredictedVariance[l] / repeats)
				require.InDelta(t, truth, out.Estimate[l], deviations*se, "bias of coordinate %d", l)
				require.InEpsilon(t, out.PredictedVariance[l], out.Variance[l], deviations*math.Sqrt(2.0/repeats),
					"variance of coordinate %d", l)
			}
		})
	}
}

// reports returns the distribution of one client's message for every grid point.
func reports(points int, gamma float64) (laws []stattest.Law) {
	for x := range points {
		law := stattest.Law{}
		law.Mix(1-gamma, stattest.OneMessage(points, x))
		for y := range points {
			law.Mix(gamma/float64(points), stattest.OneMessage(points, y))
		}
		laws = append(laws, law)
	}
	return laws
}

func TestShuffledGridIsPrivate(t *testing.T) {
	for _, rule := range []string{"revealed", "exact"} {
		for users := uint64(1); users <= 4; users++ {
			for _, target := range []struct{ eps, delta float64 }{{0.5, 0.2}, {1, 0.1}, {2, 0.01}} {
				draft, _ := open(t, planner.Query{Query: task.VectorMean, Dim: 2, Rule: rule, Batch: users, Honest: 1,
					Epsilon: target.eps, Delta: target.delta, Params: planner.Params{"r": 1}})
				gamma, _ := draft.Param("gamma")
				worst := stattest.Worst(reports(4, gamma.Float64()), int(users), target.eps)
				require.LessOrEqual(t, worst, target.delta*(1+1e-9))
			}
		}
	}
}

// The printed γ = c(r+1)/n of [AFNNTZ24] breaks the claim for d > 1: it covers r+1 symbols, not (r+1)^d.
func TestPublishedGammaIsNotPrivate(t *testing.T) {
	const users, d, r = 6, 2, 1
	num, den, err := accountant.KRRGamma(accountant.Exact, r+1, users, 1, 0.1)
	require.NoError(t, err)
	printed := float64(num) / float64(den)
	require.LessOrEqual(t, stattest.Worst(reports(r+1, printed), users, 1), 0.1, "it is right for d = 1")
	require.Greater(t, stattest.Worst(reports(4, printed), users, 1), 0.1)

	draft, m := open(t, planner.Query{Query: task.VectorMean, Dim: d, Rule: "exact", Batch: users, Honest: 1,
		Epsilon: 1, Delta: 0.1, Params: planner.Params{"r": r}})
	gamma, _ := draft.Param("gamma")
	require.LessOrEqual(t, stattest.Worst(reports(4, gamma.Float64()), users, 1), 0.1)
	require.NoError(t, m.CheckClaim())
	draft.Params[0].Value = randomizer.NewRational(int64(num), den)
	m, err = new(vectorgrid.Protocol).Open(draft)
	require.NoError(t, err)
	require.ErrorContains(t, m.CheckClaim(), "claim.delta")
}

// Calibration chooses the best r with its γ: no other r has a smaller cost.
func TestChosenGridIsTheBest(t *testing.T) {
	for _, query := range []task.Query{task.Vector, task.VectorMean} {
		for _, dim := range []uint64{1, 2, 3} {
			q := planner.Query{Query: query, Dim: dim, Lo: 0, Hi: 1, Batch: 20_000, Honest: 0.9, Epsilon: 1,
				Delta: 1e-6}
			cost := func(m protocols.Mechanism) (sum float64) {
				for _, v := range m.(*vectorgrid.Mechanism).WorstTotal() {
					sum += v
				}
				return sum
			}
			draft, best := open(t, q)
			chosen, _ := draft.Param("r")
			for r := uint64(1); r <= 60; r++ {
				q.Params = planner.Params{"r": r}
				if uint64(chosen.Num) == r {
					continue
				}
				_, other := open(t, q)
				require.LessOrEqual(t, cost(best), cost(other)*(1+1e-9), "%s, d = %d: r = %s, but %d is better", query,
					dim, chosen, r)
			}
		}
	}
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, query := range []task.Query{task.Vector, task.VectorMean} {
		for _, r := range []uint64{1, 2, 7, 60} {
			_, m := open(t, planner.Query{Query: query, Dim: 2, Lo: -1, Hi: 1, Batch: 20_000, Honest: 0.9, Epsilon: 1,
				Delta: 1e-6, Params: planner.Params{"r": r}})
			_, at, err := m.Exact(m.Worst().Value)
			require.NoError(t, err)
			require.InEpsilon(t, m.Worst().Variance, at[0], 1e-9)
			for i := range 2001 {
				_, v, err := m.Exact([]float64{-1 + float64(i)/1000, 0})
				require.NoError(t, err)
				require.LessOrEqual(t, v[0], m.Worst().Variance*(1+1e-9))
			}
		}
	}
}

func TestBadParametersNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		query planner.Query
		field string
		want  string
	}{
		"grid too large":      {planner.Query{Dim: 4, Params: planner.Params{"r": 255}}, "params.r", "at most 254"},
		"dimension too large": {planner.Query{Dim: 32}, "input.dim", "1 to 31"},
		"dimension huge":      {planner.Query{Dim: 1 << 20}, "input.dim", "1 to 31"},
		"r of zero":           {planner.Query{Dim: 2, Params: planner.Params{"r": 0}}, "params.r", "1 to 65536"},
		"r too large": {planner.Query{Dim: 1, Params: planner.Params{"r": 1<<16 + 1}}, "params.r",
			"1 to 65536"},
		"too few users": {planner.Query{Dim: 4, Rule: "theorem1", Batch: 100}, "users", "at least"},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Protocol, q.Honest, q.Epsilon, q.Delta = "test", task.VectorMean, vectorgrid.Name, 1, 1,
				1e-6
			q.Batch = max(q.Batch, 1000)
			_, err := planner.Draft(q)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
			require.Contains(t, field.Want, c.want)
		})
	}
	_, err := planner.Draft(planner.Query{Name: "test", Query: task.VectorMean, Protocol: vectorgrid.Name, Dim: 31,
		Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
}

func TestVectorsOfNormAboveOneAreRefusedOrClipped(t *testing.T) {
	q := planner.Query{Query: task.VectorMean, Dim: 2, Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6}
	_, strict := open(t, q)
	q.Clip = true
	_, clipping := open(t, q)
	src := randomizer.NewSource()
	for _, bad := range [][]float64{{1, 0.1}, {3, 4}, {1e200, 1e200}, {math.MaxFloat64, math.MaxFloat64}} {
		_, err := strict.Randomize(src, bad)
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "value", field.Field)
		require.Contains(t, field.Want, "norm at most 1")
		total, _, err := clipping.Exact(bad)
		require.NoError(t, err)
		require.InDelta(t, 1, math.Hypot(total[0], total[1]), 1e-12)
	}
	for _, bad := range [][]float64{nil, {0}, {0, 0, 0}, {0, math.NaN()}, {math.Inf(1), 0}} {
		_, err := clipping.Randomize(src, bad)
		require.ErrorContains(t, err, "invalid value")
	}
	_, err := strict.Randomize(src, []float64{math.Sqrt(0.5), math.Sqrt(0.5)})
	require.NoError(t, err)
}

// TestRandomizerFollowsItsLaw compares messages with their probabilities. With 8 degrees of freedom, Pearson's
// statistic exceeds 44 by chance once in 10⁶ runs.
func TestRandomizerFollowsItsLaw(t *testing.T) {
	const draws = 40_000
	draft, m := open(t, planner.Query{Query: task.Vector, Dim: 2, Lo: 0, Hi: 1, Batch: 100, Honest: 1, Epsilon: 2,
		Delta: 1e-6, Params: planner.Params{"r": 2}})
	gamma, _ := draft.Param("gamma")
	expected := [9]float64{}
	for w := range 9 { // of x = (0.75, 0.5), the first rounds to 1 or 2, the second to 1
		expected[w] = draws * gamma.Float64() / 9
	}
	expected[1+3*1] += draws * (1 - gamma.Float64()) / 2
	expected[2+3*1] += draws * (1 - gamma.Float64()) / 2
	src, counts, statistic := randomizer.NewSource(), [9]float64{}, 0.0
	for range draws {
		lanes, err := m.Randomize(src, []float64{0.75, 0.5})
		require.NoError(t, err)
		counts[lanes[0][0][0]]++
	}
	for w := range counts {
		statistic += (counts[w] - expected[w]) * (counts[w] - expected[w]) / expected[w]
	}
	require.Less(t, statistic, 44.0, strconv.Itoa(len(counts))+" points: %v", counts)
}
