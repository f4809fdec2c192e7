package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/doctest"
)

// TestDocumentedTablesHaveEveryExample: the documents' tables are those that the commands would print
// of today's protocols, row by row.
func TestDocumentedTablesHaveEveryExample(t *testing.T) {
	var want [][]string
	for _, q := range costQueries() {
		want = append(want, []string{string(q.Query), q.Protocol, fmt.Sprintf("%.0e", float64(q.Batch))})
	}
	require.Equal(t, want, doctest.Table(t, "../../docs/costs.md", "query", "protocol", "n"), "verifier task table")
	want = nil
	for _, q := range tableQueries() {
		want = append(want, []string{q.Protocol, string(q.Query), fmt.Sprint(q.Batch), fmt.Sprint(q.Honest),
			fmt.Sprint(q.Epsilon)})
	}
	require.Equal(t, want, doctest.Table(t, "../../docs/simulations.md", "protocol", "query", "n", "h", "ε"),
		"verifier simulate --table")
}
