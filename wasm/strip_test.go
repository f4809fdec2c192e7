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
)

// TestFrozen: Build froze doona.wasm, so that all other tests run the module that users get. It fails under a toolchain
// whose layout Freeze does not know.
func TestFrozen(t *testing.T) {
	module := built(t, wasm.Browser)
	require.NotContains(t, string(module), "runtime.gcStart", "the module contains a function's name")
	require.NotContains(t, string(module), "src/runtime/proc.go", "the module contains a file's name")
	require.Greater(t, bytes.Count(module, trap), 1000, "Freeze emptied too few functions")
	require.Less(t, len(module), 1_038_000)
	require.Equal(t, module, built(t, wasm.Browser), "the same source must give the same bytes")
	_, err := wasm.Freeze(t.Context(), module, wasm.Ran())
	require.ErrorIs(t, err, wasm.ErrLayout, "a frozen module has no names, so it cannot be frozen again")
}

// TestNothingCollects: ran.txt lists no runtime function that collects garbage, moves a stack or recovers a panic.
// doona.wasm has no write barriers, so none may run.
func TestNothingCollects(t *testing.T) {
	ran := wasm.Ran()
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
	again, err := wasm.Strip(module)
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
	require.NoError(t, wasm.LinkFrozen(t.Context(), wasm.Browser.Package(), file))
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	refused := func(bad []byte) {
		_, err := wasm.Freeze(t.Context(), bad, wasm.Ran())
		require.ErrorIs(t, err, wasm.ErrLayout)
	}
	refused(bytes.ReplaceAll(module, []byte("go1.26"), []byte("go1.99")))
	for _, bad := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), module[:len(module)/2], module[:100]} {
		refused(bad)
	}
}

// TestOtherToolchainsCollect: a module that could not be frozen has write barriers. Without them its garbage collector
// would free memory in use.
func TestOtherToolchainsCollect(t *testing.T) {
	read := func(build func(context.Context, string, string) error) []byte {
		file := filepath.Join(t.TempDir(), "module.wasm")
		require.NoError(t, build(t.Context(), wasm.Browser.Package(), file))
		module, err := os.ReadFile(file)
		require.NoError(t, err)
		return module
	}
	require.Equal(t, read(wasm.BuildCollecting), read(wasm.BuildOther))
}

// TestStackIsLarge: the goroutine of a frozen module has a stack of 256 KiB to 1 MiB, as package browser grows it.
// Outside of the runtime, only functions of the start may be emptied.
func TestStackIsLarge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "linked.wasm")
	require.NoError(t, wasm.LinkFrozen(t.Context(), wasm.Browser.Package(), file))
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	stack, err := wasm.Stack(module)
	require.NoError(t, err)
	require.GreaterOrEqual(t, stack, uint64(256<<10))
	require.LessOrEqual(t, stack, uint64(1<<20))
	names, err := wasm.Emptied(module)
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

// TestSqueeze: squeeze removes a return address that a call writes. It must keep an argument that only looks like one.
func TestSqueeze(t *testing.T) {
	address := []byte{0x42, 0x80, 0x80, 0x80, 0x80, 0x01, 0x37, 3, 0} // i64.const 0x1000<<16, i64.store
	call := []byte{0x41, 0, 0x0f, 0x0b}                               // i32.const 0, return, end
	push, argument := []byte{0x24, 0, 0x23, 0}, []byte{0x23, 0}       // global.set 0; global.get 0
	join := func(parts ...[]byte) []byte {
		code := bytes.Join(parts, nil)
		return append([]byte{1, byte(len(code) + 1), 0}, code...)
	}
	squeezed, err := wasm.Squeeze(join([]byte{0x41, 9}, push, address, call))
	require.NoError(t, err)
	require.Equal(t, join([]byte{0x41, 9, 0x24, 0}, call), squeezed)
	kept := join(argument, address, call)
	squeezed, err = wasm.Squeeze(kept)
	require.NoError(t, err)
	require.Equal(t, kept, squeezed)
}

// TestSqueezeRefusesToUnwind: Squeeze refuses a function that could return 1. Its callers would otherwise ignore that
// result.
func TestSqueezeRefusesToUnwind(t *testing.T) {
	section := func(code ...byte) []byte { return append([]byte{1, byte(len(code) + 1), 0}, code...) }
	same := section(0x41, 0x00, 0x0f, 0x0b) // i32.const 0, return, end
	squeezed, err := wasm.Squeeze(same)
	require.NoError(t, err)
	require.Equal(t, same, squeezed)
	_, err = wasm.Squeeze(section(0x41, 0x01, 0x0f, 0x0b)) // i32.const 1
	require.ErrorIs(t, err, wasm.ErrUnwinds)
	branch := []byte{0x02, 0x40, 0x0c, 0x00, 0x0b, 0x41, 0x01, 0x0b} // block, br 0, end, i32.const 1, end
	_, err = wasm.Squeeze(section(branch...))
	require.ErrorIs(t, err, wasm.ErrUnwinds)
}

// TestStripRefusesDamage cuts and changes a module at many offsets. Strip must return an error or a module and never
// panic.
func TestStripRefusesDamage(t *testing.T) {
	module := built(t, wasm.Full)
	for _, bad := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), module[:len(module)/2], module[:100]} {
		_, err := wasm.Strip(bad)
		require.ErrorIs(t, err, wasm.ErrLayout)
	}
	at := bytes.Index(module, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	require.Positive(t, at, "the module has no function table")
	for i := range 25 {
		bad := bytes.Clone(module)
		bad[at+8+3*i] ^= 0xff
		require.NotPanics(t, func() { wasm.Strip(bad) }, "byte %d of the header", 8+3*i)
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
	code, err := wasm.Strip(linked)
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
