package verifier_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestQuantilesAndMeanAreCovered: each interval must contain the truth in at least 94.5 % of runs. The mean's may do so
// in at most 96 % if all values are at the lower ends of their bins, its worst case. The limits are 5.6 standard
// deviations away, so each of 7 intervals in 7 cases fails by chance with probability 10⁻⁸. Intervals without noise
// must fail, or the test would show nothing. The long form has 10,000 runs and more bins.
func TestQuantilesAndMeanAreCovered(t *testing.T) {
	const users = 400
	runs, fine := 300.0, uint64(32)
	if stattest.Long {
		runs, fine = 10_000, 64
	}
	limit := func(share, side float64) int { return int(share*runs + side*5.6*math.Sqrt(runs*share*(1-share))) }
	for name, c := range map[string]struct {
		query planner.Query
		worst bool
		value func(i int) float64
	}{
		"skewed": {planner.Query{Bins: 16}, false,
			func(i int) float64 { return math.Min(99, 12*math.Exp(1.2*math.Sin(float64(i)))) }},
		"at the ends": {planner.Query{Bins: 8}, false, func(i int) float64 { return float64(100 * (i % 2)) }},
		// half a bin, which the mean's interval includes, is small here
		"fine": {planner.Query{Bins: fine}, false,
			func(i int) float64 { return 100 * (float64(i%int(fine*3/4)) + 0.5) / float64(fine) }},
		// The mean's interval allows for rounding, of which a histogram has none: it is 3 % too wide here.
		"at the edges":   {planner.Query{Bins: 4}, false, func(i int) float64 { return float64(i * i % 4 * 25) }},
		"all in one bin": {planner.Query{Bins: 32}, true, func(i int) float64 { return 25 }},
		// about .3 clients report the blanket, and draw one of 64 bins
		"few of the blanket": {planner.Query{Bins: 64, Epsilon: 11}, false, func(int) float64 { return 0 }},
		"correlated": {planner.Query{Bins: 8, Protocol: "correlated"}, false,
			func(i int) float64 { return float64(i*i%101) * 0.99 }},
		"correlated in two bins": {planner.Query{Bins: 2, Protocol: "correlated"}, true,
			func(i int) float64 { return float64(i * i % 3 % 2 * 50) }},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Hi, q.Batch, q.Honest, q.Delta = name, task.Histogram, 100, users, 1, 1e-4
			q.Epsilon = cmp.Or(q.Epsilon, 2)
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			values, rows, mean := make([]float64, users), make([][]float64, users), 0.0
			for i := range values {
				values[i] = c.value(i)
				rows[i] = values[i : i+1]
				mean += values[i] / users
			}
			draw, err := protocols.CapabilitiesOf(m).Fast(rows)
			require.NoError(t, err)
			slices.Sort(values)
			src := randomizer.NewSource()
			covered, narrow := map[float64]int{}, 0
			for range int(runs) {
				agg, _ := draw(src)
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
			t.Logf("%v, within 0.1 %d, %v", covered, narrow, draft.Params)
			require.Len(t, covered, 6)
			for p, n := range covered {
				require.GreaterOrEqual(t, n, limit(0.945, -1), "p = %v", p)
			}
			require.Less(t, narrow, limit(0.945, -1), "no noise to cover")
			if c.worst {
				require.LessOrEqual(t, covered[0], limit(0.96, 1))
			}
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

// TestQuantilesAndMeanHoldWhatIsLost: of 400 clients, the 40 with the largest values are missing. For protocol
// correlated, 40 messages are missing. The intervals of the mean and the quantiles must contain the truth for all
// clients in 94.5 % of 200 runs. Each fails by chance with probability below 10⁻⁸: that of 35 or more misses of
// probability 5.5 %.
func TestQuantilesAndMeanHoldWhatIsLost(t *testing.T) {
	const users, runs, most = 400, 200, 34
	for _, protocol := range []string{"histogram", "correlated"} {
		draft, err := planner.Draft(planner.Query{Name: "lost", Query: task.Histogram, Protocol: protocol, Hi: 100,
			Bins: 32, Batch: users, Honest: 0.9, Epsilon: 8, Delta: 1e-4})
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		value := func(i int) float64 { return float64(users-1-i) / 4 } // largest values first
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
