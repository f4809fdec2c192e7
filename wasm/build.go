// Package wasm builds the WebAssembly modules with which clients randomize values. docs/wasm.md describes their
// exports.
//
// doona.wasm (folder browser) is small enough for every page; WebCrypto seals the slots for it. doona-small.wasm is the
// same with fewer protocols, and doona-set.wasm with one and the δ of a set. doona-full.wasm (folder full) seals the
// slots itself. All link the Go packages that the verifier also uses, so each randomizer has one
// implementation.
package wasm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/doona-dp/doona/wasm/postlink"
)

// Module is a module's name: of its folder, or small or set.
type Module string

const (
	Browser Module = "browser"
	Small   Module = "small" // doona.wasm with the protocols of few messages alone.
	Set     Module = "set"   // doona.wasm with the protocol of sets' tables alone, and set_delta.
	Full    Module = "full"  // Has set_delta, too.
)

// MostGrowth is how many bytes the memory of doona.wasm may grow before the host must start a new instance: 64 MiB.
const MostGrowth = 64 << 20

const modulePath = "github.com/doona-dp/doona"

// Package returns the import path of a module's main package.
func (m Module) Package() string {
	if m == Small || m == Set {
		m = Browser
	}
	return modulePath + "/wasm/" + string(m)
}

// File returns the name of a module's file.
func (m Module) File() string {
	if m == Browser {
		return "doona.wasm"
	}
	return "doona-" + string(m) + ".wasm"
}

// tags returns the flags of go build that choose the protocols of a module (protocols/registry), and its exports
// (wasm/internal/client).
func (m Module) tags() []string {
	switch m {
	case Small:
		return []string{"-tags=doona_small"}
	case Set:
		return []string{"-tags=doona_small,doona_set"}
	case Full:
		return []string{"-tags=doona_set"}
	}
	return nil
}

// flags returns the go build flags of a module. It turns inlining off: the code gets larger but compresses better.
// After compression, the standard library is 1.3 % smaller and our packages 0.9 %. Inlining stays on where time
// matters: in the loops of the accountant and randomizers, package math and, in the full module, crypto. The parameter
// each holds compiler flags for every package.
func flags(each string) []string {
	// -ldflags=-w leaves function names in the module; postlink needs them
	flags := []string{"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-gcflags=all=-l " + each}
	for _, inlined := range []string{modulePath + "/accountant/...", modulePath + "/randomizer", "math/...",
		"crypto/..."} {
		flags = append(flags, "-gcflags="+inlined+"="+each)
	}
	return flags
}

// collectsNothing makes the compiler omit write barriers, which only a garbage collector needs.
const collectsNothing = "-wb=0"

// Environment returns the environment in which the go command compiles for GOOS=wasip1. It leaves out what changes the
// result: the settings of go env -w, and Go's experiments, with which the toolchain of the same version compiles
// differently.
func Environment() []string { return append(host(), "GOOS=wasip1", "GOARCH=wasm") }

// host is [Environment] for the machine itself. It keeps where the go command finds and stores modules.
func host() []string {
	env := append(os.Environ(), places()...)
	return append(env, "GOENV=off", "GOOS=", "GOARCH=", "GOFLAGS=", "GOEXPERIMENT=", "GOWASM=", "GODEBUG=",
		"CGO_ENABLED=0")
}

var places = sync.OnceValue(func() (env []string) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	values := strings.Split(string(out), "\n")
	if err != nil || len(values) <= len(names) {
		return nil
	}
	for i, name := range names {
		env = append(env, name+"="+values[i])
	}
	return env
})

// Options changes how modules are built. Its zero value builds what pages get.
type Options = postlink.Options

// Build compiles a module to a file. The working directory must be inside this Go module.
func Build(ctx context.Context, m Module, file string, o Options) error {
	if m == Full {
		return compile(ctx, m.Package(), file, Environment(), append(flags(""), m.tags()...))
	}
	return BuildFrozen(ctx, m.Package(), file, o, m.tags()...)
}

// BuildFrozen compiles and freezes any main package as Build does doona.wasm, for comparison. It fails with
// [postlink.ErrLayout] if it does not know the toolchain. more are further flags of go build.
func BuildFrozen(ctx context.Context, main, file string, o Options, more ...string) error {
	each := collectsNothing
	if !o.Does(postlink.Start) {
		each = ""
	}
	if err := linkWithSymbols(ctx, main, file, o, append(flags(each), more...)); err != nil {
		return err
	}
	return replace(file, func(module []byte) ([]byte, error) { return postlink.Freeze(ctx, module, o) })
}

// checkSettings refuses settings that go env -w has stored and that change how Go compiles. The build ignores them; but
// whoever set them should know that.
func checkSettings(ctx context.Context) error {
	for _, name := range []string{"GOEXPERIMENT", "GOWASM"} {
		cmd := exec.CommandContext(ctx, "go", "env", name)
		cmd.Env = append(os.Environ(), name+"=", "GOARCH=wasm")
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("couldn't read Go's setting %s: %w", name, err)
		}
		if value := strings.TrimSpace(string(out)); value != "" {
			return fmt.Errorf("invalid Go setting %s=%s: want none, because the module would be another one; "+
				"run: go env -u %s", name, value, name)
		}
	}
	return nil
}

// linkWithSymbols compiles a main package and links it with the linker that writes symbols.
func linkWithSymbols(ctx context.Context, main, file string, o Options, flags []string) error {
	if err := checkSettings(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "doona-linker")
	if err != nil {
		return fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	settings, err := postlink.OverlaySettings(ctx, dir, host())
	if err != nil {
		return err
	}
	native := append(host(), settings...)
	toolexec, err := postlink.BuildLinker(ctx, dir, native)
	if err != nil {
		return err
	}
	overlay, err := postlink.Overlay(dir, o)
	if err != nil {
		return err
	}
	flags = append(flags, "-toolexec="+toolexec, "-overlay="+overlay)
	return link(ctx, main, file, append(Environment(), settings...), flags)
}

// compile compiles and strips a main package.
func compile(ctx context.Context, main, file string, env, flags []string) error {
	if err := link(ctx, main, file, env, flags); err != nil {
		return err
	}
	return replace(file, postlink.Strip)
}

func link(ctx context.Context, main, file string, env, flags []string) error {
	out, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("couldn't resolve %s: %w", file, err)
	}
	args := append([]string{"build", "-o", out}, flags...)
	cmd := postlink.GoCommand(ctx, env, append(args, main)...)
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
