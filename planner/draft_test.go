package planner_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// query returns a query for which a task exists. Tests change it.
func query() planner.Query {
	return planner.Query{Name: "test", Query: task.Mean, Hi: 10, Clip: true, Batch: 1000, Honest: 0.9, Epsilon: 1,
		Delta: 1e-6}
}

func TestDraftProvesItsClaimByTheDefaultRule(t *testing.T) {
	draft, err := planner.Draft(query())
	require.NoError(t, err)
	require.Equal(t, "exact", draft.Rule)
	require.Equal(t, task.NewClaim("1", "1e-6"), draft.Claim)
	require.EqualValues(t, 900, draft.Batch.Min)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
}

func TestDraftNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner.Query)
		field  string
	}{
		"epsilon of zero":  {func(q *planner.Query) { q.Epsilon = 0 }, "epsilon"},
		"epsilon is NaN":   {func(q *planner.Query) { q.Epsilon = math.NaN() }, "epsilon"},
		"delta of one":     {func(q *planner.Query) { q.Delta = 1 }, "delta"},
		"empty range":      {func(q *planner.Query) { q.Hi = 0 }, "range"},
		"infinite range":   {func(q *planner.Query) { q.Hi = math.Inf(1) }, "range"},
		"too short range":  {func(q *planner.Query) { q.Hi = 1e-100 }, "range"},
		"no batch":         {func(q *planner.Query) { q.Batch = 0 }, "batch"},
		"all dishonest":    {func(q *planner.Query) { q.Honest = 0 }, "honest"},
		"no honest client": {func(q *planner.Query) { q.Batch, q.Honest = 1, 0.5 }, "honest"},
		"no levels": {func(q *planner.Query) {
			q.Query, q.Length, q.Params = task.Strings, 8, planner.Params{"levels": 0, "checks": 0}
		}, "params.levels"},
		"one cell": {func(q *planner.Query) {
			q.Query, q.Length, q.Params = task.Strings, 8, planner.Params{"b": 1}
		}, "params.b"},
		"one bin":           {func(q *planner.Query) { q.Query, q.Bins = task.Histogram, 1 }, "bins"},
		"too many bins":     {func(q *planner.Query) { q.Query, q.Bins = task.Histogram, 1<<32-1 }, "bins"},
		"bins of a mean":    {func(q *planner.Query) { q.Bins = 4 }, "bins"},
		"labels of a mean":  {func(q *planner.Query) { q.Labels = true }, "labels"},
		"dim of a mean":     {func(q *planner.Query) { q.Dim = 4 }, "dim"},
		"lanes of a mean":   {func(q *planner.Query) { q.Lanes = 2 }, "lanes"},
		"unknown query":     {func(q *planner.Query) { q.Query = "median" }, "query"},
		"unknown protocol":  {func(q *planner.Query) { q.Protocol = "none" }, "protocol"},
		"unknown parameter": {func(q *planner.Query) { q.Params = planner.Params{"zeta": 1} }, "params.zeta"},
	} {
		t.Run(name, func(t *testing.T) {
			q := query()
			c.change(&q)
			_, err := planner.Draft(q)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
		})
	}
}

// TestRelayNoise: the drafted task has the relay noise that the owner asks for, and its claims hold.
func TestRelayNoise(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(q *planner.Query)
		dummies float64 // maximum per relay and batch
	}{
		"count": {func(q *planner.Query) { q.Query = task.Count }, 28},
		"few dummies": {func(q *planner.Query) { q.Query, q.Bins, q.Relays.MaxDummies = task.Histogram, 16, 320 },
			320},
		"one client":   {func(q *planner.Query) { q.Query, q.Batch = task.Count, 1 }, 28},
		"local":        {func(q *planner.Query) { q.Query, q.Bins, q.Relays.LocalEpsilon = task.Histogram, 4, 6 }, 64},
		"local of sum": {func(q *planner.Query) { q.Relays.LocalEpsilon, q.Relays.MaxDummies = 9, 400 }, 400},
		"thirty epochs": {func(q *planner.Query) {
			q.Query, q.Bins, q.Epsilon, q.Delta = task.Histogram, 16, 0, 0
			q.TotalEpsilon, q.TotalDelta, q.Epochs = 5.11, 3e-5, 30
		}, 16 * 37},
		"a year of days": {func(q *planner.Query) {
			q.Query, q.Bins, q.Epsilon, q.Delta = task.Histogram, 16, 0, 0
			q.TotalEpsilon, q.TotalDelta, q.Epochs = 3, 1e-5, 365
		}, 16 * 230},
	} {
		t.Run(name, func(t *testing.T) {
			q := query()
			q.Relays = &planner.RelayNoise{Batches: 7}
			c.change(&q)
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			require.Equal(t, "augmented", draft.Protocol)
			require.Equal(t, task.NoneHonest, draft.Claim.Assumption)
			require.EqualValues(t, 7, draft.Noise.Batches)
			laws, err := relaynoise.NewLaws(draft.Noise)
			require.NoError(t, err)
			require.LessOrEqual(t, laws.Dummies(), c.dummies+1e-9)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			require.NoError(t, m.CheckClaim())
			if q.Relays.LocalEpsilon > 0 {
				require.LessOrEqual(t, m.Epsilon0(), q.Relays.LocalEpsilon)
				require.Greater(t, m.Epsilon0(), q.Relays.LocalEpsilon*(1-1e-6))
			} else {
				require.True(t, math.IsInf(m.Epsilon0(), 1))
			}
		})
	}
}

func TestRelayNoiseNamesWhatIsWrong(t *testing.T) {
	for field, change := range map[string]func(q *planner.Query){
		"protocol":      func(q *planner.Query) { q.Protocol = "realsum" },
		"query":         func(q *planner.Query) { q.Query, q.Dim = task.VectorMean, 4 },
		"max-dummies":   func(q *planner.Query) { q.Relays.MaxDummies = 3 },
		"local-epsilon": func(q *planner.Query) { q.Relays.LocalEpsilon = 65 },
		"total-delta":   func(q *planner.Query) { q.TotalEpsilon, q.Epochs = 1, 3 },
		"epochs":        func(q *planner.Query) { q.TotalEpsilon, q.TotalDelta = 1, 1e-6 },
		"epsilon":       func(q *planner.Query) { q.Epsilon = 0 },
	} {
		q := query()
		q.Relays = &planner.RelayNoise{}
		change(&q)
		_, err := planner.Draft(q)
		var wrong *invalid.FieldError
		require.ErrorAs(t, err, &wrong, field)
		require.Equal(t, field, wrong.Field)
	}
	q := query()
	q.Relays = &planner.RelayNoise{}
	q.Relays.MaxDummies = -1
	_, err := planner.Draft(q)
	require.ErrorContains(t, err, "invalid max-dummies -1: want 0 to")
}
