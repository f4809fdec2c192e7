package verifier_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// jointClients has the clients of each cell: three groups, large, small and tiny, with four values each.
var jointClients = []int{300, 500, 150, 50, 60, 90, 100, 150, 3, 2, 1, 0}

// jointTasks have noise whose cells depend on each other in every possible way.
var jointTasks = map[string]planner.Query{
	"randomized response":  {Protocol: "histogram", Epsilon: 6, Delta: 1e-4, Honest: .9},
	"dummies, fixed total": {Epsilon: 1, Delta: 1e-4, Honest: 1, Relays: &planner.RelayNoise{}},
	"dummies, cell by cell": {Epsilon: 1, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}},
	"dummies and local randomization": {Epsilon: 1, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{LocalEpsilon: 4}}},
	"little noise, fixed total": {Epsilon: 6, Delta: 1e-4, Honest: 1, Relays: &planner.RelayNoise{}},
	"little noise, cell by cell": {Epsilon: 4, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}},
	"central noise": {Protocol: "correlated", Epsilon: 1, Delta: 1e-4, Honest: .9},
}

func jointTask(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism, [][]float64) {
	t.Helper()
	q.Name, q.Query, q.Labels, q.Bins = "pairs", task.Histogram, true, uint64(len(jointClients))
	var values [][]float64
	for cell, n := range jointClients {
		for range n {
			values = append(values, []float64{float64(cell)})
		}
	}
	q.Batch = uint64(len(values))
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	return draft, m, values
}

// atLeast fails the test if the number of intervals that contain the truth is 4.9 standard deviations below what p
// predicts. It fails by chance with probability 10⁻⁶.
func atLeast(t *testing.T, p float64, held, of int, what string) {
	t.Helper()
	least := p*float64(of) - 4.9*math.Sqrt(p*(1-p)*float64(of))
	require.GreaterOrEqual(t, float64(held), least, "%s: %d of %d", what, held, of)
}

// TestJointFiguresHoldTheTruth: the intervals of shares, differences of shares, counts and quantiles must contain the
// truth as often as they claim, whatever the covariances of the cells.
func TestJointFiguresHoldTheTruth(t *testing.T) {
	const repeats, confidence = 4000, .95
	for name, q := range jointTasks {
		t.Run(name, func(t *testing.T) {
			draft, m, values := jointTask(t, q)
			held := map[string]int{}
			check := func(what string, f verifier.Figure, ok bool, truth float64) {
				require.True(t, ok, what)
				if f.Interval[0] <= truth && truth <= f.Interval[1] {
					held[what]++
				}
			}
			fast := protocols.CapabilitiesOf(m).Fast != nil
			trial := planner.Trial{Repeats: repeats, Fast: fast}
			require.NoError(t, trial.Batches(draft, m, values, func(agg protocols.Aggregate) {
				j, err := verifier.NewJoint(draft, m, agg, 3)
				require.NoError(t, err)
				for g, truth := range []float64{.8, .375} {
					f, ok := j.Share(g, 0, 2, confidence)
					check([]string{"share, large", "share, small"}[g], f, ok, truth)
				}
				f, ok := j.Difference(0, 1, 0, 2, confidence)
				check("difference", f, ok, .8-.375)
				f, ok = j.Quantile(0, .75, confidence)
				check("quantile", f, ok, 1+450./500)
				check("sum", j.Sum(1, 2, 4, confidence), true, 250)
				check("size", j.Size(2, confidence), true, 6)
			}))
			for what, n := range held {
				t.Logf("%s: %.4f", what, float64(n)/repeats)
				p := confidence
				if what == "difference" {
					p = .945 // not exact, because the size of the other group is estimated, too
				}
				atLeast(t, p, n, repeats, what)
			}
			require.Len(t, held, 6)
		})
	}
}

// TestJointSaysNothingOfFew: there is no share unless the data show that the group has clients. There is no difference
// unless the sizes of both groups are precise.
func TestJointSaysNothingOfFew(t *testing.T) {
	draft, m, values := jointTask(t, jointTasks["dummies, cell by cell"])
	require.NoError(t, planner.Trial{Repeats: 50, Fast: true}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		j, err := verifier.NewJoint(draft, m, agg, 3)
		require.NoError(t, err)
		shown := j.Size(2, .95).Interval[0] > 0
		_, ok := j.Share(2, 0, 2, .95)
		require.Equal(t, shown, ok)
		_, ok = j.Quantile(2, .75, .95)
		require.Equal(t, shown, ok)
		_, ok = j.Difference(0, 2, 0, 2, .95)
		require.False(t, ok)
	}))
}

// TestJointFiguresWithoutNoise: with many clients and nearly no noise, the estimates equal the truth.
func TestJointFiguresWithoutNoise(t *testing.T) {
	draft, m, values := jointTask(t, planner.Query{Protocol: "histogram", Epsilon: 40, Delta: 1e-4, Honest: .9})
	require.NoError(t, planner.Trial{Repeats: 1}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		j, err := verifier.NewJoint(draft, m, agg, 3)
		require.NoError(t, err)
		share, _ := j.Share(1, 1, 3, .95)
		require.InDelta(t, 190./400, share.Estimate, 1e-3)
		difference, _ := j.Difference(0, 1, 3, 4, .95)
		require.InDelta(t, .05-.375, difference.Estimate, 1e-3)
		quantile, _ := j.Quantile(0, .9, .95)
		require.InDelta(t, 2+100./150, quantile.Estimate, 1e-2)
		require.Equal(t, [2]float64{2, 3}, quantile.Interval)
		require.InDelta(t, 6, j.Size(2, .95).Estimate, .1)
	}))
}

// TestJointNeedsPairs: NewJoint must refuse a histogram without labels, and a number of groups that does not divide the
// number of labels.
func TestJointNeedsPairs(t *testing.T) {
	draft, m, _ := jointTask(t, jointTasks["randomized response"])
	_, err := verifier.NewJoint(draft, m, m.Aggregate(), 5)
	require.ErrorContains(t, err, "invalid groups 5: want a divisor of the 12 labels")
	_, err = verifier.NewJoint(draft, m, m.Aggregate(), 0)
	require.ErrorContains(t, err, "invalid groups 0")
	ranged := *draft
	ranged.Input.Labels = false
	_, err = verifier.NewJoint(&ranged, m, m.Aggregate(), 3)
	require.ErrorContains(t, err, "invalid query histogram: want a histogram over labels, for pairs")
}
