package wasm_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/doona-dp/doona/wasm"
)

// TestStripped checks that Build stripped the modules under test: all other tests here run what
// users run. It fails under a toolchain whose layout Strip does not know.
func TestStripped(t *testing.T) {
	module := built(t, wasm.Browser)
	require.NotContains(t, string(module), "runtime.gcStart", "a function's name")
	require.NotContains(t, string(module), "src/runtime/proc.go", "a file's name")
	require.Greater(t, bytes.Count(module, trap), 120, "functions that never run")
	require.Greater(t, bytes.Count(module, back), 10, "functions that have nothing to do")
	again, err := wasm.Strip(module, wasm.Ran())
	require.NoError(t, err)
	require.Equal(t, module, again, "stripping twice")
}

// TestSearchesAreLeftOut: a module has the checks of every protocol's parameters and not the search for
// those of new tasks, as the strings of both tell.
func TestSearchesAreLeftOut(t *testing.T) {
	for _, m := range []wasm.Module{wasm.Browser, wasm.Full} {
		module := string(built(t, m))
		require.Contains(t, module, "so that the noise rarely wraps around", "splitmix.Open")
		require.NotContains(t, module, "more honest users need fewer", "splitmix.Calibrate")
		require.NotContains(t, module, "that proves the claim", "correlated.Calibrate")
	}
}

// TestSizes: every function is counted, under its package.
func TestSizes(t *testing.T) {
	sizes, err := wasm.Sizes(t.Context())
	require.NoError(t, err)
	total := 0
	for path, size := range sizes {
		require.Contains(t, wasm.Imports(), path)
		total += size
	}
	module := len(built(t, wasm.Browser))
	require.Less(t, total, module)
	require.Greater(t, total, module/2, "the rest is memory as it starts")
	for _, path := range []string{"wire/task", "randomizer", "protocols/histogram", "protocols/correlated"} {
		require.Greater(t, sizes["github.com/doona-dp/doona/"+path], 1000, path)
	}
}

// The bodies of emptied functions, after their lengths.
var (
	trap = []byte("\x03\x00\x00\x0b")
	back = []byte("\x0b\x00\x23\x00\x41\x08\x6a\x24\x00\x41\x00\x0b")
)

// TestStripKeepsFunctionsOfOtherToolchains checks that nothing is emptied that was never looked at.
func TestStripKeepsFunctionsOfOtherToolchains(t *testing.T) {
	dir := t.TempDir()
	source, file := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty.wasm")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-w", "-o", file, source)
	build.Env = wasm.Environment()
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	ours, err := wasm.Strip(module, wasm.Ran())
	require.NoError(t, err)
	others, err := wasm.Strip(bytes.ReplaceAll(module, []byte("go1.26"), []byte("go1.99")), wasm.Ran())
	require.NoError(t, err)
	require.Greater(t, bytes.Count(ours, trap), 100)
	require.Less(t, bytes.Count(others, trap), 10, "bytes that look like it")
	require.Less(t, len(ours)+100_000, len(others))
}

// TestStripRefusesDamage cuts and changes a module at many places: Strip returns an error or a
// module, and never panics.
func TestStripRefusesDamage(t *testing.T) {
	module := built(t, wasm.Browser)
	for _, bad := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), module[:len(module)/2], module[:100]} {
		_, err := wasm.Strip(bad, wasm.Ran())
		require.ErrorIs(t, err, wasm.ErrLayout)
	}
	at := bytes.Index(module, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	require.Positive(t, at, "the table's header")
	for i := range 100 {
		bad := bytes.Clone(module)
		bad[at+8+i] ^= 0xff
		require.NotPanics(t, func() { wasm.Strip(bad, nil) }, "byte %d of the header", 8+i, wasm.Ran())
	}
}

// TestTrapSaysWhy checks that a stripped module that stops still tells the reason, if nothing was emptied.
func TestTrapSaysWhy(t *testing.T) {
	ctx := context.Background()
	var stderr bytes.Buffer
	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte(`package main

//go:wasmexport divide
func divide(a, b int32) int32 { return a / b }

func main() {}
`), 0o600))
	file := filepath.Join(t.TempDir(), "trap.wasm")
	require.NoError(t, wasm.Link(ctx, source, file))
	linked, err := os.ReadFile(file)
	require.NoError(t, err)
	code, err := wasm.Strip(linked, nil)
	require.NoError(t, err)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").WithStderr(&stderr)
	m, err := engine.InstantiateWithConfig(ctx, code, config)
	require.NoError(t, err)
	defer m.Close(ctx)
	_, err = m.ExportedFunction("divide").Call(ctx, 1, 0)
	require.Error(t, err)
	require.Contains(t, stderr.String(), "integer divide by zero")
}

func built(t *testing.T, module wasm.Module) []byte {
	file := filepath.Join(t.TempDir(), module.File())
	require.NoError(t, wasm.Build(context.Background(), module, file))
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	return code
}
