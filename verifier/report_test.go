package verifier_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestErrorBarsAreWhatTheySay: for every protocol, the worst-case standard error must be that of n clients who all have
// the worst value, computed exactly. The standard error from the data must not be larger. The interval must have 95 %
// of the error's law, and the band must leave 5 % for all entries together.
func TestErrorBarsAreWhatTheySay(t *testing.T) {
	for name, c := range everyProtocol {
		q := c.Query
		q.Name, q.Honest = name, 1
		draft, err := planner.Draft(q)
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		if draft.Query.Info().Shape == task.PerText { // an answer of texts has no entries
			continue
		}
		const clients = 7
		agg := aggregate(t, m, clients, c.Value)
		a := verifier.AnswerOf(draft, m, agg)
		_, variance, err := m.Exact(m.Worst().Value)
		require.NoError(t, err)
		worst := 0.0
		for _, v := range variance {
			worst = math.Max(worst, v)
		}
		scale := protocols.Scale(draft.Query, clients)
		require.NotEmpty(t, a.Estimate, name)
		for i, law := range agg.Errors() {
			require.InEpsilon(t, math.Sqrt(clients*worst)*scale, a.StandardErrorWorst[i], 1e-9, "%s, entry %d", name, i)
			require.InEpsilon(t, math.Sqrt(law.Variance())*scale, a.StandardError[i], 1e-9, "%s, entry %d", name, i)
			require.LessOrEqual(t, a.StandardError[i], a.StandardErrorWorst[i]*(1+1e-9), "%s, entry %d", name, i)
			lo, hi := law.Interval(0.95)
			require.InDeltaSlice(t, []float64{lo * scale, hi * scale}, a.Interval[i][:], 1e-12, "%s, entry %d", name, i)
			require.LessOrEqual(t, a.Interval[i][0], a.Estimate[i])
			require.GreaterOrEqual(t, a.Interval[i][1], a.Estimate[i])
			lo, hi = law.Interval(1 - 0.05/float64(len(a.Estimate)))
			require.InDeltaSlice(t, []float64{lo * scale, hi * scale}, a.Band[i][:], 1e-12, "%s, entry %d", name, i)
		}
	}
}

// TestErrorBarOfACount: in randomized response, a client answers at random with probability γ. It adds (Y - γ/2)/(1-γ)
// to the estimated count, whose variance is (γ/2)(1-γ/2)/(1-γ)² for any value.
func TestErrorBarOfACount(t *testing.T) {
	c := everyProtocol["count"]
	c.Query.Name, c.Query.Honest = "count", 1
	draft, err := planner.Draft(c.Query)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	a := verifier.AnswerOf(draft, m, aggregate(t, m, 7, c.Value))
	parameter, ok := draft.Param("gamma")
	require.True(t, ok)
	gamma := parameter.Float64()
	require.InEpsilon(t, math.Sqrt(7*gamma/2*(1-gamma/2))/(1-gamma), a.StandardError[0], 1e-12)
}

func aggregate(t *testing.T, m protocols.Mechanism, clients int, value []float64) protocols.Aggregate {
	t.Helper()
	agg, src := m.Aggregate(), randomizer.NewSource()
	for range clients {
		lanes, err := m.Randomize(src, value)
		require.NoError(t, err)
		for lane, messages := range lanes {
			for _, message := range messages {
				require.NoError(t, agg.Add(lane, message))
			}
		}
	}
	agg.AddUsers(uint64(clients))
	return agg
}
