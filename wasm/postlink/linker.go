// Package postlink makes a Go program's WebAssembly module small after Go's linker has written it. docs/postlink.md
// explains its steps.
package postlink

import (
	"bytes"
	"context"
	_ "embed" // for the files of the linker, and ran.txt
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// BuildLinker builds Go's linker with a function more, which writes the section of symbols that step Data reads. It adds
// two files and one call to the source of the installed Go, which it changes only for this build. The linker is written
// to dir, where nothing else may be. The result is for the go command's flag -toolexec.
func BuildLinker(ctx context.Context, dir string, env []string) (toolexec string, err error) {
	command := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = env
		return cmd.CombinedOutput()
	}
	root, err := command("env", "GOROOT")
	if err != nil {
		return "", fmt.Errorf("couldn't find Go's source: %w\n%s", err, root)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "cmd", "link")
	assembler := filepath.Join("internal", "wasm", "asm.go")
	original, err := os.ReadFile(filepath.Join(source, assembler))
	if err != nil {
		return "", fmt.Errorf("couldn't read Go's linker: %w", err)
	}
	if bytes.Count(original, []byte(lastSection)) != 1 {
		return "", unknown("the source of Go's linker has not one line " + strings.TrimSpace(lastSection))
	}
	changed := bytes.Replace(original, []byte(lastSection), []byte(lastSection+"\twriteSymbols(ctxt, ldr)\n"), 1)
	replaced := map[string]string{}
	for name, content := range map[string][]byte{assembler: changed, "toolexec.go": runsTools,
		filepath.Join("internal", "wasm", "symbols.go"): writesSymbols} {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", fmt.Errorf("couldn't write the linker's source: %w", err)
		}
		replaced[filepath.Join(source, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("couldn't encode the overlay: %w", err)
	}
	list, linker := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "link")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", fmt.Errorf("couldn't write the overlay: %w", err)
	}
	if text, err := command("build", "-overlay="+list, "-o", linker, "cmd/link"); err != nil {
		return "", fmt.Errorf("couldn't build Go's linker: %w\n%s", err, text)
	}
	return linker, nil
}

// lastSection is the line of cmd/link/internal/wasm/asm.go after which the module's section of symbols is written.
const lastSection = "\twriteProducerSec(ctxt)\n"
