package planner_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// TestTotalIsSplit: the epochs of a task together keep its total, and use nearly all of it.
func TestTotalIsSplit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(q *planner.Query)
		least  float64 // minimum ε of one epoch
	}{
		"histogram": {func(q *planner.Query) { q.Query, q.Bins, q.Batch = task.Histogram, 16, 10_000 }, 1.05},
		"count":     {func(q *planner.Query) { q.Query = task.Count }, 1.4},
		"one epoch": {func(q *planner.Query) { q.Epochs, q.TotalEpsilon = 1, 1 }, 1},
		"splitmix":  {func(q *planner.Query) { q.Protocol = "splitmix" }, .24},
	} {
		q := query()
		q.Honest, q.Epsilon, q.Delta = 1, 0, 0
		q.TotalEpsilon, q.TotalDelta, q.Epochs = 5.2, 3e-5, 30
		c.change(&q)
		draft, err := planner.Draft(q)
		require.NoError(t, err, name)
		t.Log(name, draft.Claim)
		require.Equal(t, task.NewDelta("3e-5"), draft.Claim.Total.Delta)
		m, err := registry.Open(draft)
		require.NoError(t, err, name)
		require.NoError(t, m.CheckClaim(), name)
		require.GreaterOrEqual(t, draft.Claim.Epsilon.Value(), c.least, name)
		draft.Claim.Total.Epsilon = task.NewEpsilon(strconv.FormatFloat(q.TotalEpsilon*.98, 'g', 6, 64))
		if m, err = registry.Open(draft); q.Epochs > 1 && draft.Protocol == "realsum" {
			require.ErrorContains(t, m.CheckClaim(), "claim.total.delta", name)
		}
		require.NoError(t, err)
	}
}
