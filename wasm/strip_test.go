package wasm_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/postlink"
)

// TestFrozen: Build froze doona.wasm, so that all other tests run the module that users get. It fails under a toolchain
// whose layout Freeze does not know.
func TestFrozen(t *testing.T) {
	module := built(t, wasm.Browser)
	require.NotContains(t, string(module), "runtime.gcStart", "the module contains a function's name")
	require.NotContains(t, string(module), "src/runtime/proc.go", "the module contains a file's name")
	require.Greater(t, bytes.Count(module, trap), 1000, "Freeze emptied too few functions")
	require.Less(t, len(module), 830_000)
	require.Equal(t, module, built(t, wasm.Browser), "the same source must give the same bytes")
	_, err := postlink.Freeze(t.Context(), module, wasm.Options{})
	require.ErrorIs(t, err, postlink.ErrLayout, "a frozen module has no names, so it cannot be frozen again")
}

// TestDownloads holds the size of the modules after brotli.
func TestDownloads(t *testing.T) {
	for m, most := range map[wasm.Module]int{wasm.Browser: 136_700, wasm.Small: 90_100, wasm.Set: 75_500} {
		size := brotlied(t, built(t, m))
		t.Logf("%s: %d bytes", m.File(), size)
		require.Less(t, size, most, m.File())
	}
}

// TestNothingCollects: ran.txt lists no runtime function that collects garbage, moves a stack or recovers a panic.
// doona.wasm has no write barriers, so none may run.
func TestNothingCollects(t *testing.T) {
	ran := postlink.Ran()
	require.True(t, len(ran) > 50 || *rewriteRan)
	for _, name := range []string{"gcStart", "gcBgMarkWorker", "gcDrain", "bgsweep", "bgscavenge", "newstack", "copystack",
		"findfunc", "pcvalue", "schedule", "newproc1"} {
		require.False(t, ran["runtime."+name], name)
	}
}

// TestStripped: doona-full.wasm has no names of functions and files.
func TestStripped(t *testing.T) {
	module := built(t, wasm.Full)
	require.NotContains(t, string(module), "runtime.gcStart", "the module contains a function's name")
	require.NotContains(t, string(module), "src/runtime/proc.go", "the module contains a file's name")
	again, err := postlink.Strip(module)
	require.NoError(t, err)
	require.Equal(t, module, again, "stripping a second time must change nothing")
}

// TestSearchesAreLeftOut: a module contains the checks of every protocol's parameters but not the search for a new
// task's parameters. It looks for error texts of both in the module.
func TestSearchesAreLeftOut(t *testing.T) {
	for _, m := range []wasm.Module{wasm.Browser, wasm.Full} {
		module := string(built(t, m))
		require.Contains(t, module, "so that the noise rarely wraps around", "splitmix.Open")
		require.NotContains(t, module, "more honest users need fewer", "splitmix.Calibrate")
		require.NotContains(t, module, "that proves the claim", "correlated.Calibrate")
	}
}

// TestSizes: Sizes counts every function, under its package.
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
	require.Greater(t, total, module/2, "more than half of the module must be code; the rest is initial memory")
	for _, path := range []string{"wire/task", "randomizer", "protocols/histogram", "protocols/correlated"} {
		require.Greater(t, sizes["github.com/doona-dp/doona/"+path], 1000, path)
	}
}

// trap is the body of an emptied function, with its length in front.
var trap = []byte("\x03\x00\x00\x0b")

// TestFreezeRefuses: Freeze refuses a module with an unknown layout. A module with random damage gives an error or a
// module, never a panic.
func TestFreezeRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "linked.wasm")
	require.NoError(t, wasm.LinkSymbols(t.Context(), wasm.Browser, file))
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	refused := func(bad []byte) {
		_, err := postlink.Freeze(t.Context(), bad, wasm.Options{})
		require.ErrorIs(t, err, postlink.ErrLayout)
	}
	_, err = postlink.Freeze(t.Context(), bytes.ReplaceAll(module, []byte("go1.26"), []byte("go1.99")), wasm.Options{})
	require.ErrorIs(t, err, postlink.ErrLayout)
	require.ErrorContains(t, err, "Go version go1.99", "the error must name the check")
	for _, bad := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), module[:len(module)/2], module[:100]} {
		refused(bad)
	}
}

// TestStackIsLarge: the goroutine of a frozen module has a stack of 256 KiB to 1 MiB, as package browser grows it.
// Outside of the runtime, only functions of the start may be emptied.
func TestStackIsLarge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "linked.wasm")
	require.NoError(t, wasm.LinkFrozen(t.Context(), wasm.Browser.Package(), file))
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	stack, err := postlink.Stack(module)
	require.NoError(t, err)
	require.GreaterOrEqual(t, stack, uint64(256<<10))
	require.LessOrEqual(t, stack, uint64(1<<20))
	names, err := postlink.Emptied(module)
	require.NoError(t, err)
	require.NotEmpty(t, names)
	starts := map[string]bool{}
	for _, path := range wasm.Imports() {
		starts[strings.NewReplacer("/", "_", "-", "_").Replace(path)+".init"] = true
	}
	number := regexp.MustCompile(`\.\d+$`)
	for _, name := range names {
		known := strings.HasPrefix(name, "wasm_pc_f_loop") || strings.HasPrefix(name, "internal_") ||
			strings.HasPrefix(name, "runtime_") || name == "main.init.0"
		require.True(t, known || starts[number.ReplaceAllString(name, "")], name)
	}
}

// TestStripRefusesDamage cuts and changes a module at many offsets. Strip must return an error or a module and never
// panic.
func TestStripRefusesDamage(t *testing.T) {
	module := built(t, wasm.Full)
	for _, bad := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), module[:len(module)/2], module[:100]} {
		_, err := postlink.Strip(bad)
		require.ErrorIs(t, err, postlink.ErrLayout)
	}
	at := bytes.Index(module, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	require.Positive(t, at, "the module has no function table")
	for i := range 25 {
		bad := bytes.Clone(module)
		bad[at+8+3*i] ^= 0xff
		require.NotPanics(t, func() { postlink.Strip(bad) }, "byte %d of the header", 8+3*i)
	}
}

// TestTrapSaysWhy: a stripped module that stops still prints the reason.
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
	code, err := postlink.Strip(linked)
	require.NoError(t, err)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").WithStderr(&stderr)
	m, err := engine.InstantiateWithConfig(ctx, code, config)
	require.NoError(t, err)
	defer m.Close(ctx)
	_, err = m.ExportedFunction("divide").Call(ctx, 1, 0)
	require.Error(t, err)
	require.Contains(t, stderr.String(), "integer divide by zero")
}

func built(t *testing.T, module wasm.Module) []byte { return builtWith(t, module, wasm.Options{}) }

func builtWith(t *testing.T, module wasm.Module, o wasm.Options) []byte {
	file := filepath.Join(t.TempDir(), module.File())
	require.NoError(t, wasm.Build(context.Background(), module, file, o))
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	return code
}
