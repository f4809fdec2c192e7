package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/andybalholm/brotli"

	"github.com/doona-dp/doona/wasm"
)

// downloads measures how many bytes a page loads to report for the first time: the SDK's script, its worker and a
// WebAssembly module.
var downloads = Group{
	Names: []string{
		"download/browser/raw", "download/browser/gzip", "download/browser/brotli",
		"download/small/raw", "download/small/gzip", "download/small/brotli",
		"download/full/raw", "download/full/gzip", "download/full/brotli",
	},
	Run: measureDownloads,
}

// imports measures how many bytes of doona.wasm each imported package takes. Rows are named by import path.
var imports = Group{Names: importNames(), Run: measureImports}

func importNames() (names []string) {
	for _, path := range wasm.Imports() {
		names = append(names, importName(path))
	}
	return names
}

func importName(path string) string { return "download/import/" + path }

func measureImports(ctx context.Context, _ *Setup) (rows []Row, err error) {
	progress("building the module with names")
	sizes, err := wasm.Sizes(ctx)
	if err != nil {
		return nil, err
	}
	for _, path := range wasm.Imports() {
		if sizes[path] > 0 { // 0 if the compiler inlined all its code, or it holds only types
			rows = append(rows, newRow(importName(path), "bytes", lower, float64(sizes[path])))
		}
	}
	return rows, nil
}

// encodings lists the compressions of a download: none, and gzip and brotli at their best levels.
var encodings = []struct {
	name string
	size func([]byte) float64
}{
	{"raw", func(p []byte) float64 { return float64(len(p)) }},
	{"gzip", func(p []byte) float64 { return float64(len(gzipped(p))) }},
	{"brotli", func(p []byte) float64 { return float64(len(brotlied(p))) }},
}

func measureDownloads(ctx context.Context, s *Setup) ([]Row, error) {
	site, err := s.Site(ctx)
	if err != nil {
		return nil, err
	}
	glue, err := readScripts(site)
	if err != nil {
		return nil, err
	}
	progress("compressing the downloads")
	floor, err := emptyModule(ctx)
	if err != nil {
		return nil, err
	}
	var peer [][]byte
	if s.Peers(ctx) {
		bundle, err := bundled("peer.ts")
		if err != nil {
			return nil, err
		}
		peer = [][]byte{bundle}
	}
	var rows []Row
	for _, m := range []wasm.Module{wasm.Browser, wasm.Small, wasm.Full} {
		module, err := readModule(site, m)
		if err != nil {
			return nil, err
		}
		for _, e := range encodings {
			total := e.size(module)
			for _, file := range glue {
				total += e.size(file)
			}
			row := newRow("download/"+string(m)+"/"+e.name, "bytes", lower, total)
			for _, bundle := range peer {
				row = row.against(peerName, e.size(bundle))
			}
			rows = append(rows, row.within("an empty Go module", e.size(floor)))
		}
	}
	return rows, nil
}

// readScripts reads the SDK's worker, whose file name holds a hash, and the SDK's script.
func readScripts(site string) (scripts [][]byte, err error) {
	names, err := filepath.Glob(filepath.Join(site, "doona-worker-*.js"))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("couldn't find the SDK's worker in %s: %v", site, names)
	}
	for _, name := range append(names, filepath.Join(site, "doona.js")) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("couldn't read the SDK's script: %w", err)
		}
		scripts = append(scripts, content)
	}
	return scripts, nil
}

// readModule reads a built WebAssembly module, whose file name holds a hash.
func readModule(site string, m wasm.Module) ([]byte, error) {
	pattern := filepath.Join(site,
		map[wasm.Module]string{wasm.Browser: "doona-[0-9a-f]*.wasm", wasm.Small: "doona-small-*.wasm",
			wasm.Full: "doona-full-*.wasm"}[m])
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		if m == wasm.Full || !bytes.Contains([]byte(file), []byte("full")) {
			return os.ReadFile(file)
		}
	}
	return nil, fmt.Errorf("couldn't find %s in %s: %v", m.File(), site, err)
}

// emptyModule compiles a Go program that does nothing to WebAssembly. No module of ours can be smaller.
func emptyModule(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "doona-bench")
	if err != nil {
		return nil, fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	source, module := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty.wasm")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, fmt.Errorf("couldn't write the empty module: %w", err)
	}
	if err := wasm.BuildFrozen(ctx, source, module, wasm.Options{}); err != nil {
		return nil, err
	}
	return os.ReadFile(module)
}

func gzipped(p []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	w.Write(p)
	w.Close()
	return out.Bytes()
}

func brotlied(p []byte) []byte {
	var out bytes.Buffer
	w := brotli.NewWriterOptions(&out, brotli.WriterOptions{Quality: brotli.BestCompression, LGWin: 24})
	w.Write(p)
	w.Close()
	return out.Bytes()
}
