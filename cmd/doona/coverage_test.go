package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
)

var update = flag.Bool("update", false, "write the rows of docs/simulations.md from docs/coverage")

// TestCoverageTables: docs/simulations.md has what `doona simulate --table` prints for the figures in docs/coverage.
// TestTextIntervals and TestBands write these files in their long forms. -update writes the rows.
func TestCoverageTables(t *testing.T) {
	const path = "../../docs/simulations.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	for _, c := range stattest.AllRows[*planner.TextCoverage](t, "../../docs/coverage/texts.json") {
		require.Contains(t, planner.TextCases(), c.TextCase)
		var out strings.Builder
		require.NoError(t, markdownTexts(&out, []textRow{textRowOf(c)}))
		checkRow(t, lines, out.String(), 3, 8)
	}
	for _, c := range stattest.AllRows[*planner.BandCoverage](t, "../../docs/coverage/bands.json") {
		require.Contains(t, planner.BandCases(), c.BandCase)
		var out strings.Builder
		require.NoError(t, markdownBands(&out, []bandRow{bandRowOf(c)}))
		checkRow(t, lines, out.String(), 7, 10)
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
	}
}

// checkRow compares the only row of a printed table with the line that begins with the same key cells. The document has
// the first columns.
func checkRow(t *testing.T, lines []string, table string, key, columns int) {
	t.Helper()
	rows := strings.Split(strings.TrimSpace(table), "\n")
	cells := strings.SplitAfter(rows[len(rows)-1], "|")
	want := strings.Join(cells[:columns+1], "")
	begin := strings.Join(cells[:key+1], "")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) })
	require.GreaterOrEqual(t, at, 0, "no row %s", begin)
	if *update {
		lines[at] = want
	}
	require.Equal(t, want, lines[at], "go test -run '^TestCoverageTables$' ./cmd/doona -update")
}

// TestDocumentedBands: docs/simulations.md has a row for every case of bands.
func TestDocumentedBands(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulations.md")
	require.NoError(t, err)
	for _, c := range planner.BandCases() {
		var out strings.Builder
		require.NoError(t, markdownBands(&out, []bandRow{bandRowOf(&planner.BandCoverage{BandCase: c})}))
		rows := strings.Split(strings.TrimSpace(out.String()), "\n")
		cells := strings.SplitAfter(rows[len(rows)-1], "|")
		require.Contains(t, string(text), "\n"+strings.Join(cells[:8], ""))
	}
}
