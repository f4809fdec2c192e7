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
)

// TestErrorBarsAreWhatTheySay: for every protocol the standard error is that of n clients who all have the
// worst value, by what the protocol says of that value exactly, and the interval is wide enough for 95 %
// of a normal error, and no wider: P(|Z| ≤ half/se) = erf(half/(se·√2)).
func TestErrorBarsAreWhatTheySay(t *testing.T) {
	for name, c := range everyProtocol {
		q := c.query
		q.Name, q.Honest = name, 1
		draft, err := planner.Draft(q)
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		const clients = 7
		a := verifier.AnswerOf(draft, m, aggregate(t, m, clients, c.value))
		_, variance, err := m.Exact(m.WorstValue())
		require.NoError(t, err)
		worst := 0.0
		for _, v := range variance {
			worst = math.Max(worst, v)
		}
		se := math.Sqrt(clients*worst) * protocols.Scale(draft.Query, clients)
		require.NotEmpty(t, a.Estimate, name)
		for i, estimate := range a.Estimate {
			require.InEpsilon(t, se, a.StandardError[i], 1e-9, "%s, entry %d", name, i)
			require.InDelta(t, estimate-a.Interval[i][0], a.Interval[i][1]-estimate, 1e-9*se)
			half := (a.Interval[i][1] - a.Interval[i][0]) / 2
			require.InDelta(t, verifier.Confidence, math.Erf(half/(a.StandardError[i]*math.Sqrt2)), 1e-7, "%s, entry %d", name, i)
		}
	}
}

// TestErrorBarOfACount: randomized response answers at random with probability γ. A client adds
// (Y - γ/2)/(1-γ) to the estimated count, whose variance is (γ/2)(1-γ/2)/(1-γ)² whatever its value.
func TestErrorBarOfACount(t *testing.T) {
	c := everyProtocol["count"]
	c.query.Name, c.query.Honest = "count", 1
	draft, err := planner.Draft(c.query)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	a := verifier.AnswerOf(draft, m, aggregate(t, m, 7, c.value))
	parameter, ok := draft.Param("gamma")
	require.True(t, ok)
	gamma := parameter.Float64()
	require.InEpsilon(t, math.Sqrt(7*gamma/2*(1-gamma/2))/(1-gamma), a.StandardError[0], 1e-12)
}

// aggregate returns the aggregate of some clients with one value.
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
