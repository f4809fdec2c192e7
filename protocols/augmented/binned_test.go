package augmented_test

import (
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
