//go:build long

package wasm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/postlink"
)

// TestEveryStepMayBeLeftOut: without any one step, doona.wasm makes the same reports. docs/postlink.md has the sizes
// that it logs.
func TestEveryStepMayBeLeftOut(t *testing.T) {
	all := frozen(t, wasm.Browser, wasm.Options{})
	for _, step := range postlink.Steps() {
		t.Run(string(step), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "doona.wasm")
			o := wasm.Options{Without: []postlink.Step{step}}
			require.NoError(t, wasm.BuildFrozen(t.Context(), wasm.Browser.Package(), file, o))
			module, err := os.ReadFile(file)
			require.NoError(t, err)
			t.Logf("without %s: %d bytes, %d after brotli", step, len(module), brotlied(t, module))
			code, err := engine.CompileModule(t.Context(), module)
			require.NoError(t, err)
			require.Empty(t, startPair(t, 1, all, code).difference(1, 2000, 100))
		})
	}
}

// otherVersion is a newer Go version than go.mod names. The go command downloads it.
const otherVersion = "go1.27.1"

// TestDownloadedToolchain: a newer toolchain in the module cache and a copy of it elsewhere build the same doona.wasm.
// Its reports, claims and refusals are those of the module that go.mod's toolchain builds, also with poison.
func TestDownloadedToolchain(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", otherVersion)
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	downloaded := strings.TrimSpace(string(root))
	require.Contains(t, filepath.ToSlash(downloaded), "golang.org/toolchain@")
	want := built(t, wasm.Browser)
	for _, o := range []wasm.Options{{}, {Poison: postlink.Poison}} {
		code, err := engine.CompileModule(t.Context(), builtWith(t, wasm.Browser, o))
		require.NoError(t, err)
		require.Empty(t, startPair(t, 1, compiled[wasm.Browser], code).difference(1, 5000, 2000))
	}
	copied := filepath.Join(t.TempDir(), "go")
	require.NoError(t, os.CopyFS(copied, os.DirFS(downloaded)))
	t.Setenv("GOROOT", copied)
	t.Setenv("GOTOOLCHAIN", "local")
	require.Equal(t, want, built(t, wasm.Browser))
}
