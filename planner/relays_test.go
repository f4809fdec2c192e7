package planner_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// TestRelaysNoiseIsAsPromised: for (ε, δ) = (1, 10⁻⁶) and two relays that add dummies, an entry's root mean square
// error and the dummies per relay and batch must be those of docs/accountant.md. Except in sums, they hold for any
// number of clients. The measured error must match the prediction, and 95 % intervals must contain the truth. The long
// form has 20,000 batches, and 2,000 for sums, of which each takes tens of milliseconds to draw.
func TestRelaysNoiseIsAsPromised(t *testing.T) {
	repeats := 300
	if stattest.Long {
		repeats = 20_000
	}
	for name, c := range map[string]struct {
		query         planner.Query
		rmse, dummies float64 // maximum values
	}{
		"count":           {planner.Query{Query: task.Count, Batch: 50}, 1.95, 28},
		"4 labels":        {planner.Query{Query: task.Histogram, Bins: 4, Labels: true, Batch: 50}, 2.9, 64},
		"256 bins":        {planner.Query{Query: task.Histogram, Bins: 256, Batch: 50}, 4, 256 * 25.5},
		"sum of 10⁴":      {limited(1e4, 1600), 2.9, 1600},
		"sum of 10⁵":      {limited(1e5, 1600), 5.3, 1600},
		"sum of 10⁵, 100": {limited(1e5, 4500), 3, 4500},
		"sum of 10⁶":      {limited(1e6, 11_000), 3.3, 11_000},
	} {
		if c.query.Batch > 1e4 && repeats < 1000 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			q := c.query
			if q.Relays == nil {
				q.Relays = &planner.RelayNoise{}
			}
			d, m := open(t, q)
			laws, err := relaynoise.NewLaws(d.Noise)
			require.NoError(t, err)
			require.LessOrEqual(t, laws.Dummies(), c.dummies+1e-6)
			repeats := repeats
			if q.Query == task.Sum {
				repeats /= 10
			}
			trial := planner.Trial{Repeats: repeats, Fast: true, Confidences: []float64{.95}}
			out, err := trial.Run(d, m, column(int(q.Batch), func(int) float64 { return m.Worst().Value[0] }))
			require.NoError(t, err)
			predicted := 0.0
			for _, v := range out.PredictedVariance {
				predicted += v / float64(len(out.PredictedVariance))
			}
			predicted = math.Sqrt(predicted)
			coverage := out.Coverage[0].Mean()
			t.Logf("n = %d: %.0f dummies, error %.3f predicted, %.3f found, coverage %.4f", q.Batch, laws.Dummies(),
				predicted, out.RMSE, coverage)
			require.LessOrEqual(t, predicted, c.rmse)
			// With a kurtosis below 6, the measured error has a relative standard error below √(5/4/repeats); 10⁻⁶ is 5
			// of them.
			require.InEpsilon(t, predicted, out.RMSE, max(.05, 5*math.Sqrt(5/4./float64(repeats))))
			require.GreaterOrEqual(t, coverage, .95-5*math.Sqrt(.05*.95/float64(repeats)))
		})
	}
}

// limited returns a query for a sum of numbers in [0, 1] with a limit on dummies.
func limited(users uint64, dummies float64) planner.Query {
	return planner.Query{Query: task.Sum, Batch: users,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: dummies}}}
}
