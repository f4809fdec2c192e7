package planner_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// query is one that has a task; tests change it.
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
		"epsilon of zero":   {func(q *planner.Query) { q.Epsilon = 0 }, "epsilon"},
		"epsilon is NaN":    {func(q *planner.Query) { q.Epsilon = math.NaN() }, "epsilon"},
		"delta of one":      {func(q *planner.Query) { q.Delta = 1 }, "delta"},
		"empty range":       {func(q *planner.Query) { q.Hi = 0 }, "range"},
		"infinite range":    {func(q *planner.Query) { q.Hi = math.Inf(1) }, "range"},
		"no batch":          {func(q *planner.Query) { q.Batch = 0 }, "batch"},
		"all dishonest":     {func(q *planner.Query) { q.Honest = 0 }, "honest"},
		"no honest client":  {func(q *planner.Query) { q.Batch, q.Honest = 1, 0.5 }, "honest"},
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
