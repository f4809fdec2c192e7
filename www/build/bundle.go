package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/doona-dp/doona/wasm"
)

// sdkFile is the SDK's bundle; pages import it by this name.
const sdkFile = "doona.js"

// bundle writes the SDK and the demo page.
func bundle(out string, modules map[wasm.Module]asset) error {
	sdk, err := script(filepath.Join("www", "sdk", "index.ts"), modules)
	if err != nil {
		return err
	}
	if err := write(out, sdkFile, sdk); err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join("www", "demo", "index.html"))
	if err != nil {
		return fmt.Errorf("couldn't read the demo page: %w", err)
	}
	text := string(page)
	for _, source := range []string{"demo.ts", "demo.css"} {
		code, err := script(filepath.Join("www", "demo", source), modules)
		if err != nil {
			return err
		}
		name := strings.Replace(source, ".ts", ".js", 1)
		if err := write(out, name, code); err != nil {
			return err
		}
		file, err := hashed(filepath.Join(out, name))
		if err != nil {
			return err
		}
		text = strings.ReplaceAll(text, source, file.File)
	}
	icon, err := os.ReadFile(filepath.Join("www", "demo", "icon.svg"))
	if err != nil {
		return fmt.Errorf("couldn't read the icon: %w", err)
	}
	if err := write(out, "icon.svg", icon); err != nil {
		return err
	}
	return write(out, "index.html", []byte(text))
}

// script bundles a TypeScript or CSS entry point. DOONA_MODULES is how www/sdk/load.ts learns
// the modules' names.
func script(entry string, modules map[wasm.Module]asset) ([]byte, error) {
	names, err := json.Marshal(modules)
	if err != nil {
		return nil, fmt.Errorf("couldn't encode the modules' names: %w", err)
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:       []string{entry},
		Bundle:            true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		Define:            map[string]string{"DOONA_MODULES": string(names)},
		LogLevel:          api.LogLevelSilent,
	})
	if err := failure(entry, result); err != nil {
		return nil, err
	}
	return result.OutputFiles[0].Contents, nil
}

// bundleSpecs writes every www/sdk/NAME.spec.ts as NAME.spec.mjs.
func bundleSpecs(out string) error {
	specs, err := filepath.Glob(filepath.Join("www", "sdk", "*.spec.ts"))
	if err != nil {
		return fmt.Errorf("couldn't list the tests: %w", err)
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:  specs,
		Bundle:       true,
		Format:       api.FormatESModule,
		Platform:     api.PlatformNode,
		Target:       api.ES2022,
		Outdir:       out,
		OutExtension: map[string]string{".js": ".mjs"},
		Write:        true,
		LogLevel:     api.LogLevelSilent,
	})
	return failure("the tests", result)
}

// failure returns the errors and warnings of a bundle as one error, if there are any.
func failure(what string, result api.BuildResult) error {
	var problems []error
	for _, m := range append(result.Errors, result.Warnings...) {
		at := api.Location{File: what}
		if m.Location != nil {
			at = *m.Location
		}
		problems = append(problems, fmt.Errorf("%s:%d: %s", at.File, at.Line, m.Text))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("couldn't bundle %s: %w", what, err)
	}
	return nil
}

func write(out, name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
		return fmt.Errorf("couldn't write %s: %w", name, err)
	}
	return nil
}
