package house_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// longPart is a part of make test-full, as testdata/parts.json describes it.
type longPart struct {
	Part    string
	Promise string
	Figures []struct{ What, Path string }
}

// result is the outcome of a part, as docs/results.json records it.
type result struct {
	Part    string
	Commit  string // the commit that the part tested; figures may name other commits
	Passed  bool
	Seconds float64
	Note    string
	Figures any
}

func readJSON(t *testing.T, into any, path ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

// TestResultsPage: docs/results.md agrees with docs/results.json, which make test-full writes for a release. To write
// the page: go test -run ResultsPage ./internal/testing/house -update
func TestResultsPage(t *testing.T) {
	var parts []longPart
	readJSON(t, &parts, "testdata", "parts.json")
	var results []result
	readJSON(t, &results, "docs", "results.json")
	var names []string
	var page strings.Builder
	page.WriteString(resultsHead)
	for _, p := range parts {
		names = append(names, p.Part)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", p.Part, p.Promise)
		i := slices.IndexFunc(results, func(r result) bool { return r.Part == p.Part })
		if i < 0 {
			fmt.Fprintf(&page, "Not run for a release yet: `make test-full PART=%s`.\n", p.Part)
			continue
		}
		p.write(t, &page, results[i])
	}
	script, err := os.ReadFile(filepath.Join("scripts", "test-full.sh"))
	require.NoError(t, err)
	listed := regexp.MustCompile(`(?m)^parts="(.*)"$`).FindSubmatch(script)
	require.NotNil(t, listed)
	require.Equal(t, strings.Fields(string(listed[1])), names)
	path := filepath.Join("docs", "results.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(text), "the page is old: run go test -run ResultsPage ./internal/testing/house -update")
}

func (p *longPart) write(t *testing.T, page *strings.Builder, r result) {
	t.Helper()
	verdict := "passed"
	if !r.Passed {
		verdict = "**did not pass as one**"
	}
	fmt.Fprintf(page, "`make test-full PART=%s` %s", p.Part, verdict)
	if r.Commit != "" {
		fmt.Fprintf(page, " on %s", r.Commit)
	}
	if r.Seconds > 0 {
		fmt.Fprintf(page, " in %.0f min", max(r.Seconds/60, 1))
	}
	page.WriteString(".\n")
	if r.Note != "" {
		fmt.Fprintf(page, "\n%s\n", r.Note)
	}
	if len(p.Figures) > 0 && r.Figures != nil {
		page.WriteString("\n| what | figure |\n|---|---|\n")
		for _, f := range p.Figures {
			fmt.Fprintf(page, "| %s | %s |\n", f.What, figureText(figure(t, r.Figures, f.Path)))
		}
	}
}

const resultsHead = `# What the long tests promise, and their results

This page is for readers who want evidence that Doona works. Each section says what one part of the long tests promises, and gives the figures of its last run.

` + "`make test-full`" + ` runs the long tests for a release. It writes [results.json](results.json) and this page.
` + "`make test-full PART=…`" + ` runs one part and leaves its result in ` + "`build/results`" + `.
`

// figure returns the number at a path in a part's figures. In a path, "#" means the length of a list and "*" the sum
// over its entries.
func figure(t *testing.T, in any, path string) float64 {
	t.Helper()
	head, rest, _ := strings.Cut(path, "/")
	switch v := in.(type) {
	case float64:
		require.Empty(t, path)
		return v
	case map[string]any:
		require.Contains(t, v, head)
		return figure(t, v[head], rest)
	case []any:
		switch head {
		case "#":
			return float64(len(v))
		case "*":
			sum := 0.0
			for _, each := range v {
				sum += figure(t, each, rest)
			}
			return sum
		}
	}
	require.Fail(t, "no number at a path of the figures", "%s in %v", path, in)
	return 0
}

// figureText formats whole numbers with all digits and other numbers with four digits.
func figureText(x float64) string {
	if x == float64(int64(x)) {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
