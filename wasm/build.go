// Package wasm builds the two modules that randomize on the client; docs/wasm.md is their ABI.
//
// doona.wasm (folder browser) is small enough for every page and leaves the sealing to WebCrypto. doona-full.wasm
// (folder full) seals by itself. Both are built from the packages that the verifier uses natively, so each randomizer
// has one implementation.
package wasm

import (
	"context"
	_ "embed" // ran.txt
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Module is one of the two modules, named by its folder.
type Module string

// The modules.
const (
	Browser Module = "browser"
	Full    Module = "full"
)

// MostGrowth is by how many bytes the memory of doona.wasm may grow before a host replaces the instance.
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

// flags returns the go build flags of a module. Without inlining the code is larger but more repetitive: after
// compression it is 1.3 % smaller for the standard library and 0.9 % for our packages. Inlining stays on where time
// matters: in the accountant's and randomizers' loops, package math and, in the full module, crypto. each holds
// compiler flags for every package.
func flags(each string) []string {
	// names stay, for Freeze
	flags := []string{"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-gcflags=all=-l " + each}
	for _, inlined := range []string{modulePath + "/accountant/...", modulePath + "/randomizer", "math/...",
		"crypto/..."} {
		flags = append(flags, "-gcflags="+inlined+"="+each)
	}
	return flags
}

// collectsNothing makes the compiler omit write barriers, which only a garbage collector needs.
const collectsNothing = "-wb=0"

// Environment returns the environment in which the go command compiles for the modules' platform. It turns
// experiments off: they would be another toolchain under the same version.
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

// BuildFrozen compiles and freezes any main package in the way of doona.wasm, for comparison. If the toolchain's
// layout is unknown, it only strips the module, which then keeps its garbage collector.
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

// Ran returns the functions of the runtime that tests have seen run in doona.wasm.
func Ran() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(ran) {
		names[name] = true
	}
	return names
}

// compile compiles and strips a main package. A module of an unknown layout works unstripped and stays as it is.
func compile(ctx context.Context, main, file string, env, flags []string) error {
	if err := link(ctx, main, file, env, flags); err != nil {
		return err
	}
	if err := replace(file, Strip); !errors.Is(err, ErrLayout) {
		return err
	}
	return nil
}

// link compiles a main package.
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

// replace rewrites a module with a function.
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
