package verifier_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
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
			requireInterval(t, draft, [2]float64{lo * scale, hi * scale}, a.Interval[i])
			require.LessOrEqual(t, a.Interval[i][0], a.Estimate[i])
			require.GreaterOrEqual(t, a.Interval[i][1], a.Estimate[i])
			lo, hi = law.Interval(1 - 0.05/float64(len(a.Estimate)))
			requireInterval(t, draft, [2]float64{lo * scale, hi * scale}, a.Band[i])
		}
	}
}

// requireInterval requires an interval of seven clients, or none if it contains every possible answer.
func requireInterval(t *testing.T, d *task.Task, want, got [2]float64) {
	t.Helper()
	lo, hi := protocols.Contribution(d)
	scale := 7 * protocols.Scale(d.Query, 7)
	if want[0] <= lo*scale && hi*scale <= want[1] {
		require.True(t, math.IsInf(got[0], -1) && math.IsInf(got[1], 1), "%s: %v for %v", d.Name, got, want)
		return
	}
	require.InDeltaSlice(t, want[:], got[:], 1e-12, d.Name)
}

// TestIntervalsThatSayNothing: an interval that contains every possible answer is none, and the answer says why. With a
// larger ε there is an interval, but no band over many epochs.
func TestIntervalsThatSayNothing(t *testing.T) {
	for _, c := range []struct {
		clients                  uint64
		epsilon                  float64
		interval, band, overMany bool
	}{{4, 1, false, false, false}, {4, 4, true, true, false}, {200, 4, true, true, true}} {
		draft, err := planner.Draft(planner.Query{Name: "mean", Query: task.Mean, Protocol: "realsum", Lo: -1, Hi: 1,
			Batch: c.clients, Honest: 1, Epsilon: c.epsilon, Delta: 1e-3})
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		agg := m.Aggregate()
		var ends [2][]byte // Of 1000 messages. A level at an end is missed with a probability below 1e-9.
		for i := range 1000 {
			lanes, err := m.Randomize(randomizer.NewSource(), []float64{float64(i%2)*2 - 1})
			require.NoError(t, err)
			if message := lanes[0][0]; i == 0 {
				ends = [2][]byte{message, message}
			} else if bytes.Compare(message, ends[0]) < 0 {
				ends[0] = message
			} else if bytes.Compare(message, ends[1]) > 0 {
				ends[1] = message
			}
		}
		for i := range c.clients { // Half of the levels are at each end.
			require.NoError(t, agg.Add(0, ends[i%2]))
		}
		agg.AddUsers(c.clients)
		a := verifier.Estimate(draft, m, agg, c.clients, 100_000)
		t.Log(c.clients, a.Interval, a.BandOverEpochs)
		require.Len(t, a.Estimate, 1)
		require.Equal(t, []bool{c.interval, c.band, c.overMany},
			[]bool{!a.Interval[0].IsNone(), !a.Band[0].IsNone(), !a.BandOverEpochs[0].IsNone()}, "%+v", a)
		require.Equal(t, a.Interval[0].IsNone(), a.Processed.Interval[0].IsNone())
		require.Equal(t, c.interval && c.band && c.overMany, a.NoneBecause == "")
		text, err := json.Marshal(a)
		require.NoError(t, err)
		for name, shown := range map[string]bool{
			"interval": c.interval, "band": c.band, "band_over_epochs": c.overMany,
		} {
			require.Equal(t, !shown, strings.Contains(string(text), `"`+name+`":null`), "%s: %s", name, text)
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
