package augmented_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// TestBelowIsWeighted checks that Below, which computes all error distributions in one pass, agrees with Weighted for
// the sum of the cells below each edge, or above it.
func TestBelowIsWeighted(t *testing.T) {
	for name, noise := range map[string]*planner.RelayNoise{
		"fixed total":             {},
		"cell by cell":            {NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}},
		"and local randomization": {NoiseOptions: protocols.NoiseOptions{LocalEpsilon: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			draft, err := planner.Draft(planner.Query{Name: "q", Query: task.Histogram, Hi: 1, Bins: 7, Batch: 400,
				Honest: 1, Epsilon: 1, Delta: 1e-4, Relays: noise})
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			var values [][]float64
			for i := range 400 {
				values = append(values, []float64{float64(i%5) / 7})
			}
			require.NoError(t, planner.Trial{Repeats: 1}.Batches(draft, m, values, func(agg protocols.Aggregate) {
				binned := protocols.CapabilitiesOf(m).Bins(agg)
				for j, law := range binned.Below() {
					weights, from, sign := make([]float64, 7), 0.0, 1.0
					for cell := range weights {
						if upper := 2*(j+1) > 7; cell > j == upper {
							weights[cell] = 1
						}
					}
					if 2*(j+1) > 7 {
						from, sign = float64(agg.Reports()), -1
					}
					want, got := binned.Weighted(weights).(protocols.Normal), law.(protocols.Normal)
					require.InDelta(t, from+sign*want.Estimate, got.Estimate, 1e-9)
					require.InEpsilon(t, want.Plugged, got.Plugged, 1e-9)
					require.InDelta(t, want.Excess, got.Excess, 1e-9)
				}
			}))
		})
	}
}

// TestRestCell: with a rest cell, the stated variance of weighted sums of cells must be that of their errors in
// simulated batches, also of the rest cell alone and of all cells below an edge. With 4,000 batches of noise whose
// excess is at most 3, a variance is found off by more than 30 % with a probability below 10⁻⁹.
func TestRestCell(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "q", Query: task.Histogram, Labels: true, Bins: 7, Batch: 100,
		Honest: 1, TotalEpsilon: 2, TotalDelta: 1e-4, Epochs: 30, Events: task.Events{Most: 1, Window: 30, Default: 2},
		Relays: &planner.RelayNoise{}})
	require.NoError(t, err)
	require.NotNil(t, draft.Noise.Rest)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	var values [][]float64
	truth := make([]float64, 7)
	for i := range 100 {
		values = append(values, []float64{float64(i % 3)})
		truth[i%3]++
	}
	rng := rand.New(rand.NewPCG(46, 9))
	sums := [][]float64{{0, 0, 1, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1}, make([]float64, 7)}
	for j := range sums[3] {
		sums[3][j] = rng.Float64()
	}
	const batches = 4000
	squares, stated := make([]float64, len(sums)+6), make([]float64, len(sums)+6)
	require.NoError(t, planner.Trial{Repeats: batches}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		bins := protocols.CapabilitiesOf(m).Bins(agg)
		var laws []protocols.ErrorLaw
		var truths []float64
		for _, weights := range sums {
			sum := 0.0
			for j, w := range weights {
				sum += w * truth[j]
			}
			laws, truths = append(laws, bins.Weighted(weights)), append(truths, sum)
		}
		below := 0.0
		for j, law := range bins.Below() {
			below += truth[j]
			laws, truths = append(laws, law), append(truths, below)
		}
		for i, law := range laws {
			off := law.(protocols.Normal).Estimate - truths[i]
			squares[i] += off * off / batches
			stated[i] = law.Variance()
		}
	}))
	for i, found := range squares {
		if i == 2 {
			require.InDelta(t, 0, found, 1e-9, "all cells together are the number of reports")
			require.InDelta(t, 0, stated[i], 1e-9)
			continue
		}
		require.InEpsilon(t, stated[i], found, .3, "sum %d", i)
	}
	require.InEpsilon(t, 6*stated[1], stated[0], .01, "the rest cell has the noise of all others")
}
