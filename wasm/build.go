// Package wasm builds the two WebAssembly modules with which clients randomize values. docs/wasm.md describes their
// exports.
//
// doona.wasm (folder browser) is small enough for every page; WebCrypto seals the slots for it. doona-full.wasm (folder
// full) seals the slots itself. Both link the Go packages that the verifier also uses, so each randomizer has one
// implementation.
package wasm

import (
	"context"
	_ "embed" // for ran.txt
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Module is doona.wasm or doona-full.wasm, named by its folder.
type Module string

const (
	Browser Module = "browser"
	Full    Module = "full"
)

// MostGrowth is how many bytes the memory of doona.wasm may grow before the host must start a new instance: 64 MiB.
const MostGrowth = 64 << 20

const modulePath = "github.com/doona-dp/doona"

// Package returns the import path of a module's main package.
func (m Module) Package() string { return modulePath + "/wasm/" + string(m) }

// File returns the name of a module's file.
func (m Module) File() string {
	if m == Full {
		return "doona-full.wasm"
	}
	return "doona.wasm"
}

// flags returns the go build flags of a module. It turns inlining off: the code gets larger but compresses better.
// After compression, the standard library is 1.3 % smaller and our packages 0.9 %. Inlining stays on where time
// matters: in the loops of the accountant and randomizers, package math and, in the full module, crypto. The parameter
// each holds compiler flags for every package.
func flags(each string) []string {
	// -ldflags=-w leaves function names in the module; Freeze needs them
	flags := []string{"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-gcflags=all=-l " + each}
	for _, inlined := range []string{modulePath + "/accountant/...", modulePath + "/randomizer", "math/...",
		"crypto/..."} {
		flags = append(flags, "-gcflags="+inlined+"="+each)
	}
	return flags
}

// collectsNothing makes the compiler omit write barriers, which only a garbage collector needs.
const collectsNothing = "-wb=0"

// Environment returns the environment in which the go command compiles for GOOS=wasip1. It turns Go's experiments off,
// because the toolchain with an experiment compiles differently under the same version.
func Environment() []string {
	return append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0")
}

// Build compiles a module to a file. The working directory must be inside this Go module.
func Build(ctx context.Context, m Module, file string) error {
	if m == Full {
		return compile(ctx, m.Package(), file, Environment(), flags(""))
	}
	return BuildFrozen(ctx, m.Package(), file)
}

// BuildFrozen compiles and freezes any main package as Build does doona.wasm, for comparison. If it does not know the
// toolchain's layout, it only strips the module, which then keeps its garbage collector.
func BuildFrozen(ctx context.Context, main, file string, more ...string) error {
	freeze := func(module []byte) ([]byte, error) { return Freeze(ctx, module, Ran()) }
	return buildFrozen(ctx, main, file, freeze, more...)
}

func buildFrozen(ctx context.Context, main, file string, freeze func([]byte) ([]byte, error), more ...string) error {
	if err := link(ctx, main, file, Environment(), append(flags(collectsNothing), more...)); err != nil {
		return err
	}
	err := replace(file, freeze)
	if errors.Is(err, ErrLayout) {
		return compile(ctx, main, file, Environment(), append(flags(""), more...))
	}
	return err
}

//go:embed ran.txt
var ran string

// Ran returns the names of the Go runtime's functions that ran in doona.wasm during the tests, from ran.txt.
func Ran() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(ran) {
		names[name] = true
	}
	return names
}

// compile compiles and strips a main package. It leaves a module with an unknown layout unstripped, which works as
// well.
func compile(ctx context.Context, main, file string, env, flags []string) error {
	if err := link(ctx, main, file, env, flags); err != nil {
		return err
	}
	if err := replace(file, Strip); !errors.Is(err, ErrLayout) {
		return err
	}
	return nil
}

func link(ctx context.Context, main, file string, env, flags []string) error {
	out, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("couldn't resolve %s: %w", file, err)
	}
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, main)...)
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't build %s: %w\n%s", main, err, strings.TrimSpace(string(text)))
	}
	return nil
}

// replace reads a module's file, passes it through a function and writes the result back.
func replace(file string, with func([]byte) ([]byte, error)) error {
	module, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("couldn't read the module: %w", err)
	}
	if module, err = with(module); err != nil {
		return err
	}
	if err := os.WriteFile(file, module, 0o644); err != nil {
		return fmt.Errorf("couldn't write the module: %w", err)
	}
	return nil
}
