//go:build check || long

package registry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// mostFilesOutside is the largest number of Go files outside its own folder that a new protocol may touch.
const mostFilesOutside = 5

// clone is a copy of the module in a temporary folder.
type clone struct {
	t   *testing.T
	dir string
}

func newClone(t *testing.T) clone {
	c := clone{t, t.TempDir()}
	for _, module := range []string{".", "beam", "lab"} { // three modules
		doctest.EachFile(t, filepath.Join("../..", module), func(name string) {
			name = filepath.Join(module, name)
			text, err := os.ReadFile(filepath.Join("../..", name))
			require.NoError(t, err)
			c.write(name, text)
		})
	}
	return c
}

func (c clone) write(name string, text []byte) {
	path := filepath.Join(c.dir, name)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(c.t, os.WriteFile(path, text, 0o600))
}

// run runs a command in the clone and returns its output. The command uses no network. With -trimpath, Go reuses the
// compiled packages that are unchanged, because their output contains no file paths.
func (c clone) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-trimpath", "GOWORK=off",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(c.dir))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestToyProtocol applies testdata/toy.patch to a copy of the module. The patch adds a complete protocol: a sampler,
// test vectors with invalid cases, its row with examples, lines in the cost and simulation tables and in
// docs/protocols.md, and the list of what doona.wasm links. The tests of the copy must pass, and the patch must touch
// few Go files outside the protocol's folder. Without the row in the table, a test of the copy must fail.
func TestToyProtocol(t *testing.T) {
	patch, err := filepath.Abs("testdata/toy.patch")
	require.NoError(t, err)
	c := newClone(t)
	stat, err := c.run("git", "apply", "-C1", "--numstat", "--apply", patch)
	require.NoError(t, err, stat)
	outside := 0
	for line := range strings.Lines(stat) {
		name := strings.Fields(line)[2]
		if strings.HasSuffix(name, ".go") && !strings.HasPrefix(name, "protocols/toy/") {
			outside++
		}
	}
	require.NotZero(t, outside)
	require.LessOrEqual(t, outside, mostFilesOutside, stat)

	out, err := c.run("go", "test", "./internal/testing/house", "./protocols/toy",
		"./protocols/registry", "./cmd/doona", "-run",
		"^(Example|TestSimulation|TestVectorsProtocols|TestVectorsBad|TestProtocolsInReadme|TestEveryPackageIsDocumented|"+
			"TestTheTableHoldsEveryProtocol|TestEveryProtocolHasTheSameFiles|TestEveryQueryHasOneDefault|TestEveryTrialRuns|"+
			"TestProtocolsAreReadable|TestDocumentedTablesHaveEveryExample)$")
	require.NoError(t, err, out)
	require.Equal(t, 4, strings.Count(out, "ok  \t"), out)
	require.NotContains(t, out, "no tests to run")

	generator, err := filepath.Glob(filepath.Join(c.dir, "testdata/v1/*.go"))
	require.NoError(t, err)
	require.Contains(t, generator, filepath.Join(c.dir, "testdata/v1/gen_toy.go"))
	out, err = c.run("go", append([]string{"vet"}, generator...)...)
	require.NoError(t, err, out)

	table, err := os.ReadFile("table.go")
	require.NoError(t, err)
	c.write("protocols/registry/table.go", table)
	out, err = c.run("go", "test", "./protocols/registry", "-run", "^TestTheTableHoldsEveryProtocol$")
	require.Error(t, err)
	require.Contains(t, out, "--- FAIL: TestTheTableHoldsEveryProtocol")
	require.Contains(t, out, `"toy"`)
}
