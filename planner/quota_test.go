package planner_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// TestQuotaCost: the share of visitors that a quota shuts out must be that of simulated visitors who come one after
// another. Networks move a mean in proportion to their reports, unless one client alone can set the answer.
func TestQuotaCost(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "mean", Query: task.Mean, Hi: 100, Clip: true, Batch: 1000,
		Protocol: "realsum", Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	var one float64
	for _, quota := range []uint64{1, 2, 7, 200} {
		draft.Clients.Quota = quota
		cost, err := planner.NewQuotaCost(draft, m)
		require.NoError(t, err)
		require.Equal(t, []uint64{quota, 2*quota - 1}, []uint64{cost.Least, cost.Most})
		for _, shared := range cost.Shared {
			const epochs = 20_000
			out := uint64(0)
			for range epochs {
				out += shared.Visitors - min(shared.Visitors, quota+rand.Uint64N(quota))
			}
			require.InDelta(t, float64(out)/float64(epochs*shared.Visitors), shared.ShutOut, .02)
		}
		if quota == 1 {
			one = cost.OneNetwork
			require.Greater(t, one, .09, "a false answer moves a mean of 1000 by a thousandth of its range")
			require.Equal(t, []planner.Shared{{Visitors: 2, ShutOut: .5}, {Visitors: 10, ShutOut: .9},
				{Visitors: 100, ShutOut: .99}}, cost.Shared)
		}
		require.InEpsilon(t, one*float64(2*quota-1), cost.OneNetwork, .1)
		require.InEpsilon(t, one*float64(min(20*(2*quota-1), 1000)), cost.TwentyNetworks, .1, "a batch has no more clients")
	}

	draft, err = planner.Draft(planner.Query{Name: "mean", Query: task.Mean, Hi: 100, Clip: true, Batch: 1000,
		Protocol: "splitmix", Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
	m, err = registry.Open(draft)
	require.NoError(t, err)
	cost, err := planner.NewQuotaCost(draft, m)
	require.NoError(t, err)
	require.Greater(t, cost.OneNetwork, 100., "where all others are at one end, to the other and beyond")
	require.Equal(t, cost.OneNetwork, cost.TwentyNetworks)
}
