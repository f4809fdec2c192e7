// Package postlink makes a Go program's WebAssembly module small after Go's linker has written it. docs/postlink.md
// explains its steps.
package postlink

import (
	"bytes"
	"context"
	_ "embed" // for the files of the linker, and ran.txt
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var (
	//go:embed linker/symbols.go.txt
	writesSymbols []byte

	//go:embed linker/toolexec.go.txt
	runsTools []byte

	//go:embed ran.txt
	ran string
)

// Ran returns the names of the Go runtime's functions that ran in doona.wasm during the tests, from ran.txt.
func Ran() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(ran) {
		names[name] = true
	}
	return names
}

// OverlaySettings returns the settings to append to env so that -overlay may replace the toolchain's files: none, or
// those that name the toolchain by a link in the folder dir. The go command refuses to replace a file beneath its
// module cache, where it keeps the toolchains that it has downloaded.
func OverlaySettings(ctx context.Context, dir string, env []string) (settings []string, err error) {
	root, err := goRoot(ctx, env)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(filepath.ToSlash(root), "golang.org/toolchain@") {
		return nil, nil
	}
	link := filepath.Join(dir, "goroot")
	if err := os.Symlink(root, link); err != nil {
		return nil, fmt.Errorf("couldn't link to Go's folder: %w", err)
	}
	return []string{settingRoot + link, "GOTOOLCHAIN=local"}, nil
}

const settingRoot = "GOROOT="

// GoCommand returns a call of the go command with the environment env: of the one in the last GOROOT of env, if that is
// not empty, otherwise of the one in PATH.
func GoCommand(ctx context.Context, env []string, args ...string) *exec.Cmd {
	name := "go"
	for _, setting := range env {
		if root, ok := strings.CutPrefix(setting, settingRoot); ok && root != "" {
			name = filepath.Join(root, "bin", "go")
		} else if ok {
			name = "go"
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	return cmd
}

// BuildLinker builds Go's linker with a function more, which writes the section of symbols that step Data reads. It
// adds two files and one call to the source of the installed Go, which it changes only for this build. The linker is
// written to the folder dir. The result is the value of the go command's flag -toolexec.
func BuildLinker(ctx context.Context, dir string, env []string) (toolexec string, err error) {
	root, err := goRoot(ctx, env)
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "src", "cmd", "link")
	assembler := filepath.Join(source, "internal", "wasm", "asm.go")
	changed, err := replaceLine(assembler, lastSection, lastSection+"\twriteSymbols(ctxt, ldr)\n")
	if err != nil {
		return "", err
	}
	list, err := writeOverlay(dir, "linker.json", map[string][]byte{assembler: changed,
		filepath.Join(source, "internal", "wasm", "symbols.go"): writesSymbols,
		filepath.Join(source, "toolexec.go"):                    runsTools})
	if err != nil {
		return "", err
	}
	linker := filepath.Join(dir, "link")
	cmd := GoCommand(ctx, env, "build", "-overlay="+list, "-o", linker, "cmd/link")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("couldn't build Go's linker: %w\n%s", err, text)
	}
	return `"` + linker + `"`, nil // quoted, as the go command splits the value at spaces
}

// lastSection is the line of cmd/link/internal/wasm/asm.go after which the module's section of symbols is written.
const lastSection = "\twriteProducerSec(ctxt)\n"

// Overlay writes a file for the go command's flag -overlay to the folder dir. It replaces the files of o.Replace.
func Overlay(dir string, o Options) (list string, err error) {
	return writeOverlay(dir, "module.json", o.Replace)
}

func goRoot(ctx context.Context, env []string) (string, error) {
	root, err := GoCommand(ctx, env, "env", "GOROOT").Output() // without the messages of a download
	if err != nil {
		return "", fmt.Errorf("couldn't find Go's source: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// replaceLine returns the content of a file of Go's source in which a line, which must be there once, is replaced.
func replaceLine(file, line, by string) ([]byte, error) {
	original, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("couldn't read Go's source: %w", err)
	}
	if bytes.Count(original, []byte(line)) != 1 {
		return nil, unknown(file + " has not one line " + strings.TrimSpace(line))
	}
	return bytes.Replace(original, []byte(line), []byte(by), 1), nil
}

// writeOverlay writes a file for the flag -overlay, and the files that replace others.
func writeOverlay(dir, name string, files map[string][]byte) (list string, err error) {
	replaced := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s", name, len(replaced), filepath.Base(path)))
		if err := os.WriteFile(file, files[path], 0o600); err != nil {
			return "", fmt.Errorf("couldn't write changed source: %w", err)
		}
		replaced[path] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("couldn't encode the overlay: %w", err)
	}
	list = filepath.Join(dir, name)
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", fmt.Errorf("couldn't write the overlay: %w", err)
	}
	return list, nil
}
