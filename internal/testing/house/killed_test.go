//go:build long

package house_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutantsAreKilled applies each mutant to a copy of its file and runs the mutant's test. The test itself must fail;
// a compile error is not enough.
func TestMutantsAreKilled(t *testing.T) {
	h, all, killed := readHouse(t), readMutants(t), map[bool]int{}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			file, changed, err := m.apply(h)
			require.NoError(t, err)
			run, failed := runGo, "--- FAIL: "+m.Test
			if m.script() {
				run, failed = runScript, "not ok 1 - "+m.Test
			}
			out, err := run(t, m, file, changed)
			require.Error(t, err, "the test passes although the mutant breaks this promise: %s", m.Promise)
			require.Contains(t, string(out), failed, "%s", out)
			killed[m.script()]++
		})
	}
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		counts := map[string]int{"mutants": len(all), "killedGo": killed[false], "killedTS": killed[true]}
		figures, err := json.Marshal(counts)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, figures, 0o644))
	}
}

// runGo runs the mutant's test with the changed file, as make test would, and returns its output.
func runGo(t *testing.T, m *mutant, file string, text []byte) ([]byte, error) {
	changed := filepath.Join(t.TempDir(), "mutant.go")
	require.NoError(t, os.WriteFile(changed, text, 0o600))
	original, err := filepath.Abs(filepath.Join(root, file))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	cmd := exec.Command("go", "test", "-tags", "postgres", "-vet=off", "-timeout", "10m", "-run", "^"+m.Test+"$", m.Package)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -overlay="+list) // also for what the test builds
	return cmd.CombinedOutput()
}

// runScript runs a test of the SDK in a folder with a changed copy of the SDK and links to everything else. The test
// reads build/www and build/fuzzcases.jsonl, which www/test.sh makes.
func runScript(t *testing.T, m *mutant, file string, text []byte) ([]byte, error) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "www", "sdk"), os.DirFS(filepath.Join(root, "www", "sdk"))))
	for _, name := range []string{"build", "testdata", "protocols", "www/vendor"} {
		target, err := filepath.Abs(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	builder := filepath.Join(dir, "builder")
	build := exec.Command("go", "build", "-o", builder, "./www/build")
	build.Dir = root
	out, err := build.CombinedOutput()
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
