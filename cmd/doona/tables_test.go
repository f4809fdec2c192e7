package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// TestDocumentedTablesHaveEveryExample: the tables in docs/costs.md and docs/simulations.md must have exactly the rows
// that the commands print for the current protocols.
func TestDocumentedTablesHaveEveryExample(t *testing.T) {
	var want [][]string
	for _, q := range costQueries() {
		want = append(want, []string{string(q.Query), q.Protocol, fmt.Sprintf("%.0e", float64(q.Batch))})
	}
	require.Equal(t, want, doctest.Table(t, "../../docs/costs.md", "query", "protocol", "n"), "doona plan --table")
	want = nil
	for _, q := range tableQueries() {
		want = append(want, []string{q.Protocol, string(q.Query), fmt.Sprint(q.Batch), fmt.Sprint(q.Honest),
			fmt.Sprint(q.Epsilon)})
	}
	require.Equal(t, want, doctest.Table(t, "../../docs/simulations.md", "protocol", "query", "n", "h", "ε"),
		"doona simulate --table")
	want = nil
	for _, c := range planner.TextCases() {
		want = append(want, []string{c.Name, fmt.Sprint(c.Users)})
	}
	require.Equal(t, want, doctest.Table(t, "../../docs/simulations.md", "clients of texts", "n"),
		"doona simulate --table")
}

// TestDocumentedCostsArePlanned: the rows of docs/costs.md with 1,000 users and padding full must have the slots and
// bytes that the planner gives now. The test skips other rows: their bytes may come from a simulated mean number of
// messages.
func TestDocumentedCostsArePlanned(t *testing.T) {
	var want, got [][]string
	for _, row := range doctest.Table(t, "../../docs/costs.md", "n", "padding", "query", "protocol", "slots × lanes",
		"bytes per report") {
		if row[0] == "1e+03" && row[1] == string(task.PaddingFull) {
			want = append(want, row[2:])
		}
	}
	for _, q := range costQueries() {
		if q.Batch != 1e3 || q.Padding == task.PaddingNone {
			continue
		}
		if r := cost(q); r.Padding == task.PaddingFull {
			got = append(got, []string{string(r.Query), r.Protocol, fmt.Sprintf("%d × %d", r.Slots, r.Lanes),
				fmt.Sprintf("%.0f", r.BytesPerReport)})
		}
	}
	require.Equal(t, want, got, "doona plan --table")
}

// TestDocumentedLossOfCorrelated: docs/verifier.md says how much wider an interval gets if 0.1 % of the slots are lost.
// The number must be 1.5 times the range for each lost slot of a client in docs/costs.md, plus at most 0.01 for the
// noise. From 1 on, the row must say "unusable".
func TestDocumentedLossOfCorrelated(t *testing.T) {
	shares := map[string]map[string]float64{}
	for _, row := range doctest.Table(t, "../../docs/costs.md", "protocol", "padding", "n", "slots × lanes",
		"messages per user") {
		if row[0] != "correlated" || row[4] == "" {
			continue
		}
		lost := row[4]
		if row[1] == "full" {
			lost = strings.TrimSuffix(row[3], " × 1")
		}
		x, err := strconv.ParseFloat(lost, 64)
		require.NoError(t, err)
		if shares[row[2]] == nil {
			shares[row[2]] = map[string]float64{}
		}
		shares[row[2]][row[1]] = 1.5 * x / 1000
	}
	rows := doctest.Table(t, "../../docs/verifier.md", "clients", "padding none", "padding full")
	require.Len(t, rows, len(shares))
	for _, row := range rows {
		for i, padding := range []string{"none", "full"} {
			text, unusable := strings.CutSuffix(row[i+1], ", unusable")
			x, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			least := shares[row[0]][padding]
			require.GreaterOrEqual(t, x, least*0.999, row)
			require.LessOrEqual(t, x, least+0.01, row)
			require.Equal(t, x >= 1, unusable, row)
		}
	}
}
