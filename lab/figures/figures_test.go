package figures_test

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/lab/figures"
)

// docs is the folder with the committed documents.
const docs = "../../docs"

// full is set if the tests run in their long form.
var full = stattest.Long

// TestDocumentsAreOfTheirTables: the committed pictures and docs/reproduction.md must be what the committed CSV files
// produce, and docs/figures must hold no other files.
func TestDocumentsAreOfTheirTables(t *testing.T) {
	dir, files := t.TempDir(), map[string]bool{}
	require.NoError(t, os.CopyFS(dir, os.DirFS(docs)))
	for _, f := range figures.All() {
		require.NoError(t, f.Draw(dir))
		sameFile(t, dir, figures.Folder+"/"+f.Name+".svg")
		files[f.Name+".svg"], files[f.Name+".csv"] = true, true
	}
	require.NoError(t, figures.WriteReproduction(dir))
	sameFile(t, dir, "reproduction.md")
	entries, err := os.ReadDir(filepath.Join(docs, figures.Folder))
	require.NoError(t, err)
	for _, entry := range entries {
		require.True(t, files[entry.Name()], "docs/figures/%s belongs to no figure: delete it", entry.Name())
	}
}

// sameFile requires that a file below dir equals the committed file below docs.
func sameFile(t *testing.T, dir, name string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(docs, name))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "%s: run make figures", name)
}

// TestFiguresComeOutAgain: a quick run must compute the numbers of the committed tables at the same x. It skips
// measured series, because a quick run has fewer repetitions. A full run must reproduce all CSV files byte by byte.
func TestFiguresComeOutAgain(t *testing.T) {
	dir, found := t.TempDir(), 0
	for _, f := range figures.All() {
		if f.Slow && !full {
			continue
		}
		compute := f.ComputeQuick
		if full {
			compute = f.Compute
		}
		require.NoError(t, compute(dir))
		if full {
			sameFile(t, dir, figures.Folder+"/"+f.Name+".csv")
			continue
		}
		again, err := f.Read(dir)
		require.NoError(t, err)
		committed, err := f.Read(docs)
		require.NoError(t, err)
		require.Equal(t, committed.Series, again.Series, f.Name)
		for _, series := range again.Series {
			for _, p := range again.Points(series) {
				want := committed.At(series, p[0])
				if !figures.Measured(series) && !math.IsNaN(want) {
					require.InDelta(t, want, p[1], 1e-4*math.Abs(want), "%s, %s at %g", f.Name, series, p[0])
					found++
				}
			}
		}
	}
	require.True(t, full || found > 20)
}

// TestSlopes: a fitted exponent must be within 0.15 of theory. If it is not, the figure must give the reason.
func TestSlopes(t *testing.T) {
	for _, f := range figures.All() {
		table, err := f.Read(docs)
		require.NoError(t, err)
		for _, s := range f.Slopes {
			b, _ := table.Fit(s)
			require.False(t, math.IsNaN(b), "%s: %s", f.Name, s.Series)
			if s.Why == "" {
				require.InDelta(t, s.Theory, b, .15, "%s: %s", f.Name, s.Series)
			} else {
				require.Greater(t, math.Abs(b-s.Theory), .15, "%s: %s: the fit agrees with theory, so Why must be empty", f.Name, s.Series)
			}
		}
	}
}

// TestValuesOfPapers: numbers of a paper and of this module that measure the same thing must agree within 5 %.
func TestValuesOfPapers(t *testing.T) {
	data, err := figures.ReadAll(docs)
	require.NoError(t, err)
	compared := 0
	for _, item := range figures.Items() {
		require.NotEmpty(t, item.What)
		require.Contains(t, []figures.Status{figures.Reproduced, figures.Corrected, figures.OutOfScope}, item.Status)
		if item.Status != figures.Reproduced {
			require.NotEmpty(t, item.Note, item.What)
		}
		if off, same := item.Off(data); same {
			require.LessOrEqual(t, off, .05, item.What)
			compared++
		}
	}
	require.GreaterOrEqual(t, compared, 8)
}

// TestFiguresCanBeRead: figures must have unique names, captions of 26 to 88 words, and series that have points and
// whose names fit the legend.
func TestFiguresCanBeRead(t *testing.T) {
	all := figures.All()
	seen := map[string]bool{}
	for _, f := range all {
		require.False(t, seen[f.Name], f.Name)
		seen[f.Name] = true
		require.Greater(t, len(strings.Fields(f.Caption)), 25, f.Name)
		require.LessOrEqual(t, len(strings.Fields(f.Caption)), 88, f.Name)
		table, err := f.Read(docs)
		require.NoError(t, err)
		for _, series := range table.Series {
			require.True(t, display.FitsLegend(series), "%s: %s", f.Name, series)
			require.NotEmpty(t, table.Points(series), "%s: %s", f.Name, series)
		}
	}
}

// TestErrata: every erratum's program must still show its claim to be wrong, and docs/errata.md must hold every entry
// with the evidence.
func TestErrata(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docs, "errata.md"))
	require.NoError(t, err)
	errata := figures.Errata()
	require.Equal(t, len(errata), strings.Count(string(page), "\n## "))
	for _, e := range errata {
		require.Contains(t, string(page), "\n## "+e.Name+"\n\n**Where**: "+e.Where+".\n\n**Printed**: "+e.Claim+
			"\n\n**True**: "+e.Truth+"\n")
		if e.Slow && !full {
			continue
		}
		evidence, err := e.Show()
		require.NoError(t, err)
		require.Contains(t, string(page), e.Name+"`:\n\n> "+evidence+"\n", "run make figures")
	}
}

// TestTablesKeepTheirNumbers: reading a CSV file must return its numbers exactly, and NaN for empty cells.
func TestTablesKeepTheirNumbers(t *testing.T) {
	f := figures.All()[0]
	text, err := os.ReadFile(filepath.Join(docs, figures.Folder, f.Name+".csv"))
	require.NoError(t, err)
	records, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	require.NoError(t, err)
	table, err := f.Read(docs)
	require.NoError(t, err)
	require.Equal(t, records[0][1:], table.Series)
	holes := 0
	for i, record := range records[1:] {
		for j, cell := range record {
			if cell == "" {
				require.True(t, math.IsNaN(table.Rows[i][j]))
				holes++
				continue
			}
			want, err := strconv.ParseFloat(cell, 64)
			require.NoError(t, err)
			require.Equal(t, want, table.Rows[i][j])
		}
	}
	require.Positive(t, holes, "the test needs empty cells: the bound of EFMRTT'19 has no value for few users")
}
