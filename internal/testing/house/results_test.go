package house_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// longPart is a part of make test-full.
type longPart struct {
	Part    string
	Promise string
	Tests   []string // files and folders that it tests
	Except  []string // files there that only other parts run
	Figures []struct{ What, Path string }
}

// result is what a part wrote when it ran.
type result struct {
	Commit  string // of all of it; figures may name others
	Passed  bool
	Seconds float64
	Note    string
	Figures any
}

// readLongParts returns the parts in the order in which scripts/test-full.sh runs them.
func readLongParts(t *testing.T) (all []longPart) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "parts.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	var names []string
	for _, p := range all {
		names = append(names, p.Part)
		for _, name := range slices.Concat(p.Tests, p.Except) {
			_, err := os.Stat(name)
			require.NoError(t, err, p.Part)
		}
	}
	script, err := os.ReadFile(filepath.Join("scripts", "test-full.sh"))
	require.NoError(t, err)
	listed := regexp.MustCompile(`(?m)^parts="(.*)"$`).FindSubmatch(script)
	require.NotNil(t, listed)
	require.Equal(t, strings.Fields(string(listed[1])), names)
	return all
}

// result returns what the part wrote; false where it wrote nothing.
func (p *longPart) result(t *testing.T) (r result, ok bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("docs", "results", p.Part+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r), p.Part)
	return r, true
}

// TestResultsPage: docs/results.md says what the results do. To write it:
// go test -run ResultsPage ./internal/testing/house -update
func TestResultsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(resultsHead)
	for _, p := range readLongParts(t) {
		r, ok := p.result(t)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", p.Part, p.Promise)
		if !ok {
			fmt.Fprintf(&page, "Has not written a result yet. `make test-full PART=%s`\n", p.Part)
			continue
		}
		verdict := "passed"
		if !r.Passed {
			verdict = "**did not pass as one**"
		}
		fmt.Fprintf(&page, "`make test-full PART=%s` %s", p.Part, verdict)
		if r.Commit != "" {
			fmt.Fprintf(&page, " on %s", r.Commit)
		}
		if r.Seconds > 0 {
			fmt.Fprintf(&page, " in %.0f minutes", max(r.Seconds/60, 1))
		}
		fmt.Fprintf(&page, " ([its result](results/%s.json)). It tests %s", p.Part, "`"+strings.Join(p.Tests, "`, `")+"`")
		if len(p.Except) > 0 {
			fmt.Fprintf(&page, ", but for %s", "`"+strings.Join(p.Except, "`, `")+"`")
		}
		page.WriteString(".\n")
		if r.Note != "" {
			fmt.Fprintf(&page, "\n%s\n", r.Note)
		}
		if len(p.Figures) > 0 && r.Figures != nil {
			page.WriteString("\n| what | figure |\n|---|---|\n")
			for _, f := range p.Figures {
				fmt.Fprintf(&page, "| %s | %s |\n", f.What, figureText(figure(t, r.Figures, f.Path)))
			}
		}
	}
	path := filepath.Join("docs", "results.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(text), "go test -run ResultsPage ./internal/testing/house -update")
}

const resultsHead = `# What was promised, what was run, and what came of it

Each part of ` + "`make test-full`" + ` writes its result, and this page is made of these. ` + "`make test-full`" + ` without a
part runs those whose result is older than what they test, one after the other. It can be stopped and goes on
where it was. ` + "`DOONA_FULL=1 go test -run ResultsAreCurrent ./internal/testing/house`" + ` names the ones that are older.
`

// figure returns the number at a path of a result: "#" is a length, "*" the sum over a list.
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
	require.Fail(t, "no figure", "%s in %v", path, in)
	return 0
}

// figureText writes whole numbers in full, others in four digits.
func figureText(x float64) string {
	if x == float64(int64(x)) {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// TestResultsAreCurrent, with DOONA_FULL=1: every part passed, on a commit since which nothing has changed of what it
// tests.
func TestResultsAreCurrent(t *testing.T) {
	if os.Getenv("DOONA_FULL") == "" {
		t.Skip("results are older than the code until the long tests have run: DOONA_FULL=1")
	}
	for _, p := range readLongParts(t) {
		t.Run(p.Part, func(t *testing.T) {
			r, ok := p.result(t)
			require.True(t, ok, "it has not run")
			require.True(t, r.Passed, r.Note)
			args := append([]string{"diff", "--stat", r.Commit, "--"}, p.Tests...)
			for _, name := range p.Except {
				args = append(args, ":(exclude)"+name)
			}
			out, err := exec.Command("git", args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Empty(t, string(out), "changed since %s", r.Commit)
		})
	}
}
