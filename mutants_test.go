package doona_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a small change that breaks a promise, and the test that must fail for it.
type mutant struct {
	Name        string
	File        string // of the change, from the root of the module
	Text        string // stands there once
	Replacement string
	Promise     string // what the change breaks
	Package     string
	Test        string
}

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

// TestMutantsApply: every mutant still changes one place of Go, and its test is still there.
func TestMutantsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range readMutants(t) {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Promise, m.Name)
		_, err := parser.ParseFile(token.NewFileSet(), m.File, m.apply(t), parser.SkipObjectResolution)
		require.NoError(t, err, m.Name)
		require.True(t, hasTest(t, m.Package, m.Test), "%s: no %s in %s", m.Name, m.Test, m.Package)
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}

// TestMutantsAreKilled runs, with DOONA_FULL=1, the test of every mutant against it: the test must fail,
// and by itself, not because the mutant does not compile. The files in place are not touched.
func TestMutantsAreKilled(t *testing.T) {
	if os.Getenv("DOONA_FULL") == "" {
		t.Skip("DOONA_FULL=1 runs one go test for each mutant")
	}
	for _, m := range readMutants(t) {
		t.Run(m.Name, func(t *testing.T) {
			changed := filepath.Join(t.TempDir(), "mutant.go")
			require.NoError(t, os.WriteFile(changed, []byte(m.apply(t)), 0o600))
			original, err := filepath.Abs(m.File)
			require.NoError(t, err)
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
			require.NoError(t, err)
			list := filepath.Join(t.TempDir(), "overlay.json")
			require.NoError(t, os.WriteFile(list, overlay, 0o600))
			run := exec.Command("go", "test", "-vet=off", "-timeout", "10m", "-run", "^"+m.Test+"$", m.Package)
			// The overlay holds for commands too that the test builds, and the test is that of make test.
			run.Env = append(os.Environ(), "GOFLAGS=-overlay="+list, "DOONA_FULL=")
			out, err := run.CombinedOutput()
			require.Error(t, err, "it survives: %s", m.Promise)
			require.Contains(t, string(out), "--- FAIL: "+m.Test, "%s", out)
		})
	}
}
