package planner_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// TestErrorsInReadme: the errors for 5,000 visitors in README.md equal those of a plan, within 5 %.
func TestErrorsInReadme(t *testing.T) {
	queries := map[string]func(*planner.Query){
		"count":     func(q *planner.Query) { q.Query = task.Count },
		"mean":      func(q *planner.Query) { q.Query, q.Hi = task.Mean, 100 },
		"histogram": func(q *planner.Query) { q.Query, q.Bins, q.Labels = task.Histogram, 256, true },
		"texts":     func(q *planner.Query) { q.Query, q.Length = task.Strings, 32 },
	}
	rows := doctest.Table(t, "../README.md", "question", "error")
	require.Len(t, rows, len(queries))
	for _, row := range rows {
		g := planner.Goal{Query: planner.Query{Name: "readme", Batch: 5000, Honest: .9, Epsilon: 1, Delta: 1e-6},
			Noise: planner.NoiseRelays, Hops: planner.DefaultRelays}
		require.Contains(t, queries, row[0])
		queries[row[0]](&g.Query)
		ways, err := planner.Plan(g, nil)
		require.NoError(t, err)
		require.NoError(t, ways[0].Why)
		text, _, _ := strings.Cut(row[1], " ")
		claimed, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.InEpsilon(t, ways[0].RMSE, claimed, .05, "%s: %g", row[0], ways[0].RMSE)
	}
}
