package wasm_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/doona-dp/doona/wasm"
)

var update = flag.Bool("update", false, "rewrite the committed import lists")

var (
	engine   wazero.Runtime
	compiled = map[wasm.Module]wazero.CompiledModule{}
)

// TestMain builds and compiles both modules once.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		ctx := context.Background()
		dir, err := os.MkdirTemp("", "doona-wasm")
		must(err)
		defer os.RemoveAll(dir)
		engine = wazero.NewRuntime(ctx)
		defer engine.Close(ctx)
		wasi_snapshot_preview1.MustInstantiate(ctx, engine)
		for _, module := range []wasm.Module{wasm.Browser, wasm.Small, wasm.Set, wasm.Full} {
			file := filepath.Join(dir, module.File())
			if *rewriteRan && module == wasm.Browser {
				must(wasm.LinkFrozen(ctx, module.Package(), file))
				ctx = traced(ctx)
			} else {
				must(wasm.Build(ctx, module, file, wasm.Options{}))
			}
			code, err := os.ReadFile(file)
			must(err)
			compiled[module], err = engine.CompileModule(ctx, code)
			must(err)
		}
		status := m.Run()
		if *rewriteRan && status == 0 {
			must(writeRan())
		}
		return status
	}())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// TestImports compares the packages that the modules link, and the functions that they import from the host, with the
// committed lists. A package makes the download larger; a function lets the module do more.
func TestImports(t *testing.T) {
	for _, module := range []wasm.Module{wasm.Browser, wasm.Full} {
		t.Run(string(module), func(t *testing.T) {
			golden(t, filepath.Join(string(module), "imports.txt"), linked(t, module))
			golden(t, filepath.Join(string(module), "host.txt"), hostImports(module))
		})
	}
}

// TestBrowserImportsAreSmall names packages that doona.wasm must never link, even if the list is rewritten with
// -update.
func TestBrowserImportsAreSmall(t *testing.T) {
	for _, path := range linked(t, wasm.Browser) {
		for _, banned := range []string{"fmt", "crypto", "crypto/", "math/big", "encoding/json",
			"github.com/vmihailenco/", "golang.org/", "net", "os", "time"} {
			require.False(t, path == banned || strings.HasSuffix(banned, "/") && strings.HasPrefix(path, banned),
				"doona.wasm must not link %s", path)
		}
	}
	for _, name := range hostImports(wasm.Browser) {
		require.True(t, strings.HasPrefix(name, "wasi_snapshot_preview1."), "doona.wasm may import only WASI functions, not %s", name)
	}
}

// linked returns the packages that a module links, without Go's internal packages.
func linked(t *testing.T, module wasm.Module) []string {
	cmd := exec.Command("go", "list", "-deps", module.Package())
	cmd.Env = wasm.Environment()
	out, err := cmd.Output()
	require.NoError(t, err)
	paths := slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "runtime/internal/") ||
			strings.Contains(path, "/internal/") && !strings.Contains(path, ".")
	})
	slices.Sort(paths)
	return paths
}

func hostImports(module wasm.Module) []string {
	var names []string
	for _, f := range compiled[module].ImportedFunctions() {
		from, name, _ := f.Import()
		names = append(names, from+"."+name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func golden(t *testing.T, file string, lines []string) {
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got,
		"the list changed: if you want that, run go test ./wasm -update and say why in the commit")
}
