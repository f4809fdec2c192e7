package wasm

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/wasm/postlink"
)

//go:embed browser/imports.txt
var imports string

// Imports returns the paths of all packages in doona.wasm, except Go's internal ones.
func Imports() []string { return strings.Fields(imports) }

// Sizes returns the size of each package in [Imports], by path: how many bytes its functions take in doona.wasm before
// compression. "runtime" includes Go's internal packages.
func Sizes(ctx context.Context) (map[string]int, error) {
	dir, err := os.MkdirTemp("", "doona-sizes")
	if err != nil {
		return nil, fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, Browser.File())
	if err := linkWithSymbols(ctx, Browser.Package(), file, Options{}, flags(collectsNothing)); err != nil {
		return nil, err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the module: %w", err)
	}
	functions, err := postlink.FunctionSizes(ctx, module)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	for name, size := range functions {
		sizes[packageOf(name)] += size
	}
	return sizes, nil
}

// packageOf returns the package in [Imports] to which a function belongs, by the function's name in the name section.
// That section writes the characters / and - as underscores.
func packageOf(name string) string {
	for _, path := range Imports() {
		if strings.HasPrefix(name, strings.NewReplacer("/", "_", "-", "_").Replace(path)+".") {
			return path
		}
	}
	return "runtime"
}
