package planner_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
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

// eventsRow is a limit on events in a year under a claim, with the largest error of one relay's noise.
type eventsRow struct {
	eps, delta   float64
	most, window uint64 // At most this many events in any window of epochs.
	rmse         float64
}

// TestEventsNoiseIsAsPromised: for a count and for 17 cells with rare events, one relay's noise must be within a limit,
// for any number of epochs. Through two relays, each cell's error must be the predicted one within 5 % or six standard
// errors, and 95 % intervals must contain the truth in at least 94.8 % of batches. With a kurtosis below 6, the
// relative standard error of a measured error is below √(5/4/repeats), so a check of an error fails by chance with
// probability 2·10⁻⁹. The long form has some 150 cells, so all its checks fail by chance with probability below 10⁻⁶.
func TestEventsNoiseIsAsPromised(t *testing.T) {
	rows, repeats := []eventsRow{{1, 1e-6, 1, 365, 2.9}}, 1500
	if stattest.Long {
		rows, repeats = append(rows, eventsRow{1, 1e-6, 2, 365, 5.8}, eventsRow{1, 1e-6, 4, 365, 11.5},
			eventsRow{3, 1e-5, 1, 365, .89}, eventsRow{3, 1e-5, 2, 365, 1.9}, eventsRow{3, 1e-5, 4, 365, 3.9},
			eventsRow{1, 1e-6, 1, 30, 22.2}), 20_000
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("(%g, %g), %d in %d", row.eps, row.delta, row.most, row.window), func(t *testing.T) {
			query := planner.Query{Query: task.Count, Batch: 50, TotalEpsilon: row.eps, TotalDelta: row.delta,
				Epochs: 365, Events: task.Events{Most: row.most, Window: row.window}, Relays: &planner.RelayNoise{}}
			count := eventsError(t, query, repeats)
			require.LessOrEqual(t, count, row.rmse)
			query.Query, query.Bins, query.Labels, query.Events.Default = task.Histogram, 17, true, 3
			require.InEpsilon(t, count, eventsError(t, query, repeats), .03)
		})
	}
}

// eventsError checks the errors and intervals of each cell of a query with events. It returns the largest error of one
// relay's noise in a cell other than the default's.
func eventsError(t *testing.T, q planner.Query, repeats int) (most float64) {
	q.Name, q.Hi, q.Honest = "events", 1, 1
	d, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	if q.Events.Window == q.Epochs && stattest.Long { // A month needs the same noise as a year.
		month := q
		month.Epochs, month.Events.Window = 30, 30
		other, err := planner.Draft(month)
		require.NoError(t, err)
		require.Equal(t, d.Noise, other.Noise)
	}
	trial := planner.Trial{Repeats: repeats, Fast: true, Confidences: []float64{.95}}
	out, err := trial.Run(d, m, column(int(q.Batch), func(int) float64 { return m.Worst().Value[0] }))
	require.NoError(t, err)
	tolerance := max(.05, 6*math.Sqrt(5/4./float64(repeats)))
	for cell, variance := range out.PredictedVariance {
		predicted := math.Sqrt(variance)
		require.InEpsilon(t, predicted, math.Sqrt(out.Variance[cell]), tolerance, "cell %d", cell)
		require.InDelta(t, out.Truth[cell], out.Estimate[cell], 6*predicted/math.Sqrt(float64(repeats)))
		requireCoverage(t, cell, out.Coverage[0].Entries[cell], repeats, .948, 1)
		if d.Noise.Rest == nil || uint64(cell) != *d.Noise.Rest {
			most = max(most, predicted/math.Sqrt2)
		}
	}
	t.Logf("%s: %.4g of one relay; of two %.4g predicted, %.4g found, coverage %.4f", q.Query, most,
		out.PredictedRMSE(), out.RMSE, out.Coverage[0].Mean())
	return most
}
