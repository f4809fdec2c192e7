// Command build builds the folder build/www: the WASM modules, the SDK and the pages, bundled with esbuild's Go
// API. It needs only Go and does not check TypeScript's types; www/test.sh does.
//
//	go run ./www/build [-out build/www] [-without step,…] [-poison]
//	go run ./www/build -package build/package   # the npm package from build/www, without its types (www/pack.sh)
//	go run ./www/build -programs build/programs linux/amd64 …   # the program's npm packages, without licences
//	go run ./www/build -specs build/specs       # the SDK's own tests, for node --test
//	go run ./www/build -edge build/edge         # the edge worker, and its script for pages
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wasm/postlink"
)

func main() {
	out := flag.String("out", filepath.Join("build", "www"), "folder to write")
	specs := flag.String("specs", "", "folder to write the SDK's tests to, and nothing else")
	npm := flag.String("package", "", "folder to write the npm package to, and nothing else")
	programs := flag.String("programs", "", "folder to write the program doona's npm packages to, for the platforms that "+
		"are the arguments, and nothing else")
	edge := flag.String("edge", "", "folder to write the edge worker to, and nothing else (docs/edge.md)")
	without := flag.String("without", "", "steps after linking to leave out, with commas between (docs/postlink.md)")
	poison := flag.Bool("poison", false, "fill cleared data with a pattern, for tests (docs/postlink.md)")
	flag.Parse()
	err := error(nil)
	switch {
	case *specs != "":
		err = bundleSpecs(*specs)
	case *npm != "":
		err = pack(*out, *npm)
	case *programs != "":
		err = packPrograms(context.Background(), *programs, flag.Args())
	case *edge != "":
		err = buildEdge(context.Background(), *edge)
	default:
		err = build(context.Background(), *out, *without, *poison)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

// build builds everything in a temporary folder. Only if all succeeds does it replace the folder out. The working
// directory must be the repository's root.
// without names the steps after linking to leave out.
func build(ctx context.Context, out, without string, poison bool) error {
	o, err := parseSteps(without)
	if err != nil {
		return err
	}
	if poison {
		o.Poison = postlink.Poison
	}
	if err := checkVendored(filepath.Join("www", "vendor")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("couldn't make a folder for %s: %w", out, err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(out), "www-")
	if err != nil {
		return fmt.Errorf("couldn't make a folder beside %s: %w", out, err)
	}
	defer os.RemoveAll(fresh)
	files, err := buildModules(ctx, fresh, o)
	if err != nil {
		return err
	}
	if err := bundleSDK(fresh, files); err != nil {
		return err
	}
	if err := bundlePages(fresh, files); err != nil {
		return err
	}
	if err := copyLicences(fresh); err != nil {
		return err
	}
	return replace(out, fresh)
}

// replace removes the folder out and renames fresh to out.
func replace(out, fresh string) error {
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("couldn't remove the old %s: %w", out, err)
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return fmt.Errorf("couldn't open %s to readers: %w", fresh, err)
	}
	if err := os.Rename(fresh, out); err != nil {
		return fmt.Errorf("couldn't rename the new %s: %w", out, err)
	}
	return nil
}

// parseSteps parses the names of steps after linking to leave out.
func parseSteps(names string) (o wasm.Options, err error) {
	for name := range strings.SplitSeq(names, ",") {
		step := postlink.Step(name)
		if name != "" && !slices.Contains(postlink.Steps(), step) {
			return o, fmt.Errorf("invalid step %q: want one of %v", name, postlink.Steps())
		}
		o.Without = append(o.Without, step)
	}
	return o, nil
}

// buildModules compiles the WASM modules in parallel.
func buildModules(ctx context.Context, out string, o wasm.Options) (assets, error) {
	var (
		wait  sync.WaitGroup
		names = []wasm.Module{wasm.Browser, wasm.Small, wasm.Set, wasm.Full}
		built = make([]asset, len(names))
		errs  = make([]error, len(names))
	)
	for i, m := range names {
		wait.Go(func() {
			file := filepath.Join(out, m.File())
			of := o
			of.Dead = func(cleared, all int) {
				fmt.Fprintf(os.Stderr, "%s: cleared %d of %d bytes of data\n", m.File(), cleared, all)
			}
			if errs[i] = wasm.Build(ctx, m, file, of); errs[i] == nil {
				built[i], errs[i] = addHash(file)
			}
		})
	}
	wait.Wait()
	files := assets{}
	for i, m := range names {
		if errs[i] != nil {
			return nil, errs[i]
		}
		files[string(m)] = built[i]
	}
	return files, nil
}
