package verifier_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestQuantilesAndMeanAreCovered: each interval holds the truth at least as often as it says. A run's
// intervals are right with probability ≥ 0.95 each; fewer than 0.95·runs - 5.2 standard deviations
// of them would be a false alarm of probability below 10⁻⁷ for each of 6 intervals and 4 cases.
// Intervals without their noise must fail the same count, or the test would show nothing.
func TestQuantilesAndMeanAreCovered(t *testing.T) {
	const users, runs = 400, 300
	least := int(0.95*runs - 5.2*math.Sqrt(runs*0.95*0.05))
	for name, c := range map[string]struct {
		query planner.Query
		value func(i int) float64
	}{
		"skewed": {planner.Query{Bins: 16},
			func(i int) float64 { return math.Min(99, 12*math.Exp(1.2*math.Sin(float64(i)))) }},
		"at the ends": {planner.Query{Bins: 8}, func(i int) float64 { return float64(100 * (i % 2)) }},
		// half a bin covers little
		"fine": {planner.Query{Bins: 128}, func(i int) float64 { return 100 * (float64(i%100) + 0.5) / 128 }},
		"correlated": {planner.Query{Bins: 8, Protocol: "correlated"},
			func(i int) float64 { return float64(i*i%101) * 0.99 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Hi, q.Batch, q.Honest, q.Epsilon, q.Delta = name, task.Histogram, 100, users, 1, 2, 1e-4
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			values, mean := make([]float64, users), 0.0
			for i := range values {
				values[i] = c.value(i)
				mean += values[i] / users
			}
			slices.Sort(values)
			src := randomizer.NewSource()
			covered, narrow := map[float64]int{}, 0
			for range runs {
				agg := m.Aggregate()
				for _, x := range values {
					lanes, err := m.Randomize(src, []float64{x})
					require.NoError(t, err)
					for lane, messages := range lanes {
						for _, message := range messages {
							require.NoError(t, agg.Add(lane, message))
						}
					}
				}
				agg.AddUsers(users)
				d := verifier.DistributionOf(draft, m, agg)
				count := func(p, truth float64, l verifier.Location) {
					require.LessOrEqual(t, l.Interval[0], l.Interval[1])
					if l.Interval[0] <= truth && truth <= l.Interval[1] {
						covered[p]++
					}
				}
				count(0, mean, d.Mean)
				if math.Abs(d.Mean.Estimate-mean) <= 0.1 {
					narrow++
				}
				for _, l := range d.Quantiles {
					count(l.Probability, values[int(math.Ceil(l.Probability*users))-1], l)
				}
			}
			require.Len(t, covered, 6)
			for p, n := range covered {
				require.GreaterOrEqual(t, n, least, "p = %v, of %d runs", p, runs)
			}
			require.Less(t, narrow, least, "no noise to cover")
		})
	}
}

func TestALabelHasNoQuantiles(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "labels", Query: task.Histogram, Bins: 4, Labels: true, Batch: 100,
		Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	agg := m.Aggregate()
	require.NoError(t, agg.Add(0, []byte{1}))
	require.Nil(t, verifier.DistributionOf(draft, m, agg))
}

// TestQuantilesAndMeanHoldWhatIsLost: of 400 clients the 40 with the largest values are missing, or as many
// messages of correlated. The intervals of the mean and of every quantile hold the truth for all clients in
// 94.5 % of 200 runs, but for a false alarm of probability below 10⁻⁸ each: of misses with probability 5.5 %,
// 35 or more have 10⁻⁸.
func TestQuantilesAndMeanHoldWhatIsLost(t *testing.T) {
	const users, runs, most = 400, 200, 34
	for _, protocol := range []string{"histogram", "correlated"} {
		draft, err := planner.Draft(planner.Query{Name: "lost", Query: task.Histogram, Protocol: protocol, Hi: 100,
			Bins: 32, Batch: users, Honest: 0.9, Epsilon: 8, Delta: 1e-4})
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		value := func(i int) float64 { return float64(users-1-i) / 4 } // the largest first
		missed, src := map[float64]int{}, randomizer.NewSource()
		for range runs {
			agg, lost := m.Aggregate(), uint64(0)
			for i := range users {
				lanes, err := m.Randomize(src, []float64{value(i)})
				require.NoError(t, err)
				for _, message := range lanes[0] {
					if lost < 40 {
						lost++
						continue
					}
					require.NoError(t, agg.Add(0, message))
				}
			}
			agg.AddUsers(users)
			d := verifier.DistributionOfLoss(draft, m, agg, verifier.Counts{Users: users, Batches: 1, Lost: lost})
			require.NotNil(t, d, protocol)
			count := func(p, truth float64, l verifier.Location) {
				if truth < l.Interval[0] || truth > l.Interval[1] {
					missed[p]++
				}
			}
			count(0, 49.875, d.Mean)
			for _, l := range d.Quantiles {
				count(l.Probability, value(users-int(l.Probability*users)), l)
			}
		}
		t.Logf("%s: missed %v", protocol, missed)
		for p, n := range missed {
			require.LessOrEqual(t, n, most, "%s, p = %v", protocol, p)
		}
	}
}
