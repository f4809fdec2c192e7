package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/doona-dp/doona/wasm"
)

// edgeScript is the script with which pages report to an edge worker. It sets the global doonaEdge with the function
// report.
const edgeScript = "doona-edge.js"

// buildEdge writes the edge worker to out/worker and the script for pages to out/page. wrangler uploads out/worker
// unchanged. buildEdge prints the script tag to put into pages.
func buildEdge(ctx context.Context, out string) error {
	if err := wasm.BuildEdge(ctx, filepath.Join(out, "worker")); err != nil {
		return err
	}
	page := filepath.Join(out, "page")
	if err := os.RemoveAll(page); err != nil {
		return fmt.Errorf("couldn't remove the old %s: %w", page, err)
	}
	if err := os.MkdirAll(page, 0o755); err != nil {
		return fmt.Errorf("couldn't make %s: %w", page, err)
	}
	code, err := bundleEdgeScript()
	if err != nil {
		return err
	}
	if err := write(page, edgeScript, code); err != nil {
		return err
	}
	file, err := addHash(filepath.Join(page, edgeScript))
	if err != nil {
		return err
	}
	fmt.Printf("<script src=\"/%s\" integrity=\"%s\"></script>\n", file.File, file.Integrity)
	return nil
}

func bundleEdgeScript() ([]byte, error) {
	result := api.Build(api.BuildOptions{
		Stdin: &api.StdinOptions{ResolveDir: filepath.Join("www", "edge"),
			Contents: "import { report } from './report.js'; globalThis.doonaEdge = { report };"},
		Bundle:            true,
		Format:            api.FormatIIFE,
		Target:            api.ES2022,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LogLevel:          api.LogLevelSilent,
	})
	if err := failure("www/edge/report.ts", result); err != nil {
		return nil, err
	}
	return result.OutputFiles[0].Contents, nil
}
