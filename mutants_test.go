package doona_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"
)

// mutant is a small change that breaks a promise, and the test that must fail for it.
type mutant struct {
	Name        string
	File        string // of the change, from the root of the module
	Text        string // stands there once
	Replacement string
	Promise     string // what the change breaks
	Package     string // of Go, or the file with the test of a change in TypeScript
	Test        string
}

func (m *mutant) script() bool { return filepath.Ext(m.File) == ".ts" }

func readMutants(t *testing.T) (all []mutant) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mutants.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	return all
}

// apply returns the mutant's file with the change.
func (m *mutant) apply(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.File)
	require.NoError(t, err)
	times := strings.Count(string(text), m.Text)
	require.Equal(t, 1, times, "%s: %s does not hold the text once: %q", m.Name, m.File, m.Text)
	return strings.Replace(string(text), m.Text, m.Replacement, 1)
}

// TestMutantsApply: every mutant still changes one place and can be read, and its test is still there.
func TestMutantsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range readMutants(t) {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Promise, m.Name)
		changed := m.apply(t)
		if m.script() {
			require.Empty(t, api.Transform(changed, api.TransformOptions{Loader: api.LoaderTS}).Errors, m.Name)
		} else {
			_, err := parser.ParseFile(token.NewFileSet(), m.File, changed, parser.SkipObjectResolution)
			require.NoError(t, err, m.Name)
		}
		require.True(t, m.hasTest(t), "%s: no %s in %s", m.Name, m.Test, m.Package)
	}
}

func (m *mutant) hasTest(t *testing.T) bool {
	t.Helper()
	files, head := []string{m.Package}, "\ntest('"+m.Test+"', "
	if !m.script() {
		var err error
		files, err = filepath.Glob(filepath.Join(m.Package, "*_test.go"))
		require.NoError(t, err)
		head = "\nfunc " + m.Test + "(t *testing.T) {"
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Contains(string(text), head)
	})
}

// TestMutantsAreKilled runs, with DOONA_FULL=1, the test of every mutant against it: the test must fail,
// and by itself, not because the mutant does not compile. The files in place are not touched.
func TestMutantsAreKilled(t *testing.T) {
	if os.Getenv("DOONA_FULL") == "" {
		t.Skip("DOONA_FULL=1 runs one go test for each mutant")
	}
	all, killed := readMutants(t), map[string]int{}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			out, err := m.run(t)
			require.Error(t, err, "it survives: %s", m.Promise)
			failed := "--- FAIL: " + m.Test
			if m.script() {
				failed = "not ok 1 - " + m.Test
			}
			require.Contains(t, string(out), failed, "%s", out)
			killed[filepath.Ext(m.File)]++
		})
	}
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		figures, err := json.Marshal(map[string]int{"mutants": len(all), "killedGo": killed[".go"], "killedTS": killed[".ts"]})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, figures, 0o644))
	}
}

// run returns what the mutant's test prints.
func (m *mutant) run(t *testing.T) ([]byte, error) {
	if m.script() {
		return m.runScript(t)
	}
	changed := filepath.Join(t.TempDir(), "mutant.go")
	require.NoError(t, os.WriteFile(changed, []byte(m.apply(t)), 0o600))
	original, err := filepath.Abs(m.File)
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	cmd := exec.Command("go", "test", "-vet=off", "-timeout", "10m", "-run", "^"+m.Test+"$", m.Package)
	// The overlay holds for commands too that the test builds, and the test is that of make test.
	cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+list, "DOONA_FULL=")
	return cmd.CombinedOutput()
}

// runScript runs a test of the SDK in a folder that has a copy of the SDK with the change, and all else by links. Tests
// read build/www and build/fuzzcases.jsonl, which www/test.sh makes.
func (m *mutant) runScript(t *testing.T) ([]byte, error) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "www", "sdk"), os.DirFS(filepath.Join("www", "sdk"))))
	for _, name := range []string{"build", "testdata", "protocols", "www/vendor"} {
		target, err := filepath.Abs(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, m.File), []byte(m.apply(t)), 0o600))
	builder := filepath.Join(dir, "builder")
	out, err := exec.Command("go", "build", "-o", builder, "./www/build").CombinedOutput()
	require.NoError(t, err, "%s", out)
	bundle := exec.Command(builder, "-specs", "specs")
	bundle.Dir = dir
	out, err = bundle.CombinedOutput()
	require.NoError(t, err, "%s", out)
	spec := strings.TrimSuffix(filepath.Base(m.Package), ".ts") + ".mjs"
	run := exec.Command("node", "--test", "--test-reporter=tap", "--test-timeout=600000",
		"--test-name-pattern", "^"+regexp.QuoteMeta(m.Test)+"$", filepath.Join(dir, "specs", spec))
	run.Dir = filepath.Join(dir, "www")
	return run.CombinedOutput()
}
