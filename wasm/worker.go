package wasm

import (
	"context"
	_ "embed" // for entry.mjs
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed edge/worker/entry.mjs
var entry []byte

// workersModule is the library that runs Go in a Cloudflare worker.
const workersModule = "github.com/syumai/workers"

// BuildWorker creates the folder of an edge worker. It holds app.wasm, compiled from a main package for GOOS=js, and
// the JavaScript of github.com/syumai/workers that starts it. BuildWorker deletes everything else in the folder. The
// working directory must be inside this Go module.
func BuildWorker(ctx context.Context, main, dir string) error {
	generate := exec.CommandContext(ctx, "go", "run", workersModule+"/cmd/workers-assets-gen", "-mode=go", "-o", dir)
	if text, err := generate.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't make the worker's scripts: %w\n%s", err, strings.TrimSpace(string(text)))
	}
	env := append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=", "CGO_ENABLED=0")
	flags := []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w"}
	return compile(ctx, main, filepath.Join(dir, "app.wasm"), env, flags)
}

// BuildEdge creates the folder of Doona's edge worker (docs/edge.md), which wrangler can deploy.
func BuildEdge(ctx context.Context, dir string) error {
	if err := BuildWorker(ctx, modulePath+"/wasm/edge/worker", dir); err != nil {
		return err
	}
	return ReplaceEntry(dir)
}

// ReplaceEntry replaces the worker's default worker.mjs by our entry.mjs, which starts Go once for many requests.
func ReplaceEntry(dir string) error {
	for _, stock := range []string{"worker.mjs", "runtime.mjs"} {
		if err := os.Remove(filepath.Join(dir, stock)); err != nil {
			return fmt.Errorf("couldn't remove the default %s: %w", stock, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "entry.mjs"), entry, 0o644); err != nil {
		return fmt.Errorf("couldn't write the entry: %w", err)
	}
	return nil
}
