// Package wasm builds the two modules that randomize on the client; docs/wasm.md is their ABI.
//
// doona.wasm (folder browser) is small enough for every page and leaves the sealing to
// WebCrypto. doona-full.wasm (folder full) seals by itself. Both are built from the packages
// the analyzer uses natively, so there is one implementation of every randomizer.
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

// Module is one of the two modules: its folder in this one.
type Module string

// The modules.
const (
	Browser Module = "browser"
	Full    Module = "full"
)

// MostGrowth is by how many bytes the memory of doona.wasm grows before a host starts another instance in its place.
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

// flags are the go build flags of a module. Without inlining the code is larger but repeats itself more: less after
// compression, by 1.3 % for the standard library and by 0.9 % for ours. Where time counts (the accountant's loops and
// the randomizers', package math and, in the full module, crypto) inlining stays on. each are flags of the compiler
// for every package.
func flags(each string) []string {
	// names stay, for Freeze
	flags := []string{"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-gcflags=all=-l " + each}
	for _, inlined := range []string{modulePath + "/accountant/...", modulePath + "/randomizer", "math/...",
		"crypto/..."} {
		flags = append(flags, "-gcflags="+inlined+"="+each)
	}
	return flags
}

// collectsNothing has the compiler leave out what a garbage collector must be told of when pointers are written.
const collectsNothing = "-wb=0"

// Environment is what the go command needs to compile for the modules' platform. An experiment would be another
// toolchain under the same version.
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

// BuildFrozen compiles and freezes any main package as doona.wasm is, for comparison. What another toolchain laid out
// in another way is only stripped; that it collects garbage is right there.
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

// Ran returns the functions of the runtime that were seen to run in doona.wasm.
func Ran() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(ran) {
		names[name] = true
	}
	return names
}

// compile compiles and strips a main package. What another toolchain laid out in another way works as it is and
// stays.
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

// replace replaces a module by what is made of it.
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
