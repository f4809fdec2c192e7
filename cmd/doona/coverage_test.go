package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
)

var update = flag.Bool("update", false, "write the tables of docs/simulations.md from docs/coverage")

// TestCoverageTables: the tables of intervals and bands in docs/simulations.md are what `doona simulate --table` prints
// for the figures in docs/coverage. TestTextIntervals and TestBands write these files in their long forms. -update
// writes the tables.
func TestCoverageTables(t *testing.T) {
	texts := stattest.AllRows[*planner.TextCoverage](t, "../../docs/coverage/texts.json")
	bands := stattest.AllRows[*planner.BandCoverage](t, "../../docs/coverage/bands.json")
	var textRows []textRow
	for i, c := range planner.TextCases() {
		require.Greater(t, len(texts), i, c.Name)
		require.Equal(t, c, texts[i].TextCase)
		textRows = append(textRows, textRowOf(texts[i]))
	}
	var bandRows []bandRow
	for i, c := range planner.BandCases() {
		require.Greater(t, len(bands), i, "%+v", c)
		require.Equal(t, c, bands[i].BandCase)
		bandRows = append(bandRows, bandRowOf(bands[i]))
	}
	var out strings.Builder
	require.NoError(t, markdownTexts(&out, textRows))
	require.NoError(t, markdownBands(&out, bandRows))
	page, err := os.ReadFile("../../docs/simulations.md")
	require.NoError(t, err)
	want := string(page)
	for _, table := range strings.Split(strings.TrimSpace(out.String()), "\n\n") {
		want = replaceTable(t, want, table)
	}
	if *update {
		require.NoError(t, os.WriteFile("../../docs/simulations.md", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "go test -run '^TestCoverageTables$' ./cmd/doona -update")
}

// replaceTable replaces the table of a page whose head begins with the same four columns.
func replaceTable(t *testing.T, page, table string) string {
	head := strings.Join(strings.SplitAfterN(table, "|", 6)[:5], "")
	before, rest, ok := strings.Cut(page, "\n"+head)
	require.True(t, ok, head)
	require.NotContains(t, rest, "\n"+head)
	_, after, ok := strings.Cut(rest, "\n\n")
	require.True(t, ok, head)
	return before + "\n" + table + "\n\n" + after
}
