package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/wasm"
)

// The names of the SDK's scripts. A page imports moduleFile or loads globalFile with a script tag.
const (
	moduleFile = "doona.js"
	globalFile = "doona.global.js"
	workerFile = "doona-worker.js"
	tokensFile = "doona-tokens.js"
	wordsFile  = "doona-words.js" // for explanations

	inPlaceFile = "doona-in-place.js" // the engine for the page's thread

	// The same for pages with a set: the page's script, the worker's, and the engine for the page's thread.
	setFile        = "doona-set.js"
	setWorkerFile  = "doona-set-worker.js"
	setInPlaceFile = "doona-set-in-place.js"

	testingFile = "testing.js" // The package's export doona/testing, a fake relay for unit tests.

	// The same as CommonJS, for Jest and `require` in Node. They contain the scripts for tokens, explanations
	// and the page's thread.
	moduleCommonJS  = "doona.cjs"
	testingCommonJS = "testing.cjs"

	integrityFile = "integrity.json" // The integrity metadata of all files that pages load.
	mapExt        = ".map"           // Source maps of moduleFile and globalFile.
)

// sdkFiles returns the names of all built files that pages load, in the folder out.
func sdkFiles(out string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(out, "doona*"))
	if err != nil {
		return nil, fmt.Errorf("couldn't list %s: %w", out, err)
	}
	return slices.DeleteFunc(all, func(file string) bool {
		return strings.HasSuffix(file, mapExt) || strings.HasSuffix(file, moduleCommonJS)
	}), nil
}

// assets are the files that the SDK's scripts fetch. The keys are the names in www/sdk/files.ts, such as "worker".
type assets map[string]asset

// bundleSDK writes the SDK's scripts to out. It writes the scripts that others load first, because those contain their
// hashes.
func bundleSDK(out string, files assets) error {
	for _, s := range []loaded{{"worker", "worker.ts", workerFile}, {"tokens", "blind.ts", tokensFile},
		{"words", "explain.ts", wordsFile}, {"inPlace", "in-place.ts", inPlaceFile}} {
		if err := s.bundle(out, files); err != nil {
			return err
		}
	}
	sets, err := bundleSets(out, files)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		file, entry string
		options
	}{{moduleFile, "index.ts", options{mapped: moduleFile}},
		{setFile, "set-index.ts", options{files: sets}}, {globalFile, "index.ts", options{mapped: globalFile,
			global: true}}, {moduleCommonJS, "index.ts", options{commonJS: true}}, {testingFile, "testing.ts", options{}},
		{testingCommonJS, "testing.ts", options{commonJS: true}}} {
		if s.files == nil {
			s.files = files
		}
		result, err := bundle(s.entry, s.options)
		if err != nil {
			return err
		}
		for _, file := range result { // A source map comes first.
			name := s.file
			if strings.HasSuffix(file.Path, mapExt) {
				name += mapExt
			}
			if err := write(out, name, file.Contents); err != nil {
				return err
			}
		}
	}
	return writeIntegrity(out)
}

// loaded is a script that another one loads: its name in www/sdk/files.ts, its source, and its file.
type loaded struct{ asset, entry, file string }

// bundle writes the script to out under a name with its hash, and adds it to files.
func (s loaded) bundle(out string, files assets) error {
	code, err := script(s.entry, options{files: files})
	if err != nil {
		return err
	}
	if err := write(out, s.file, code); err != nil {
		return err
	}
	files[s.asset], err = addHash(filepath.Join(out, s.file))
	return err
}

// bundleSets writes the scripts that the page's script for sets loads. It returns the files as that script names them:
// the module, worker and engine in place are those of sets.
func bundleSets(out string, files assets) (assets, error) {
	sets := maps.Clone(files)
	sets[string(wasm.Small)] = files[string(wasm.Set)]
	for _, s := range []loaded{{"worker", "set-worker.ts", setWorkerFile},
		{"inPlace", "set-in-place.ts", setInPlaceFile}} {
		if err := s.bundle(out, sets); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// bundlePages writes the demo and the web-vitals example. Their scripts must be in the folder of the SDK's files, which
// they fetch.
func bundlePages(out string, files assets) error {
	for _, page := range []struct{ folder, address string }{{"demo", "."},
		{"demo/month", "month"}, {"examples/web-vitals", "examples/web-vitals"}} {
		if err := bundlePage(filepath.Join("www", page.folder), out, page.address, files); err != nil {
			return err
		}
	}
	icon, err := display.Files.ReadFile("icon.svg")
	if err != nil {
		return fmt.Errorf("couldn't read the icon: %w", err)
	}
	return write(out, "icon.svg", icon)
}

// bundlePage writes the index.html of folder to address below out. It bundles the page's scripts and style sheets,
// under names that contain their hash.
func bundlePage(folder, out, address string, files assets) error {
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil {
		return fmt.Errorf("couldn't read the page: %w", err)
	}
	text := string(page)
	for _, m := range sources.FindAllStringSubmatch(text, -1) {
		source := m[1]
		code, err := script(filepath.Join("..", "..", folder, source), options{files: files})
		if err != nil {
			return err
		}
		name := strings.Replace(source, ".ts", ".js", 1)
		if err := write(out, name, code); err != nil {
			return err
		}
		file, err := addHash(filepath.Join(out, name))
		if err != nil {
			return err
		}
		text = strings.Replace(text, m[0], `"/`+file.File+`"`, 1)
	}
	if err := os.MkdirAll(filepath.Join(out, address), 0o755); err != nil {
		return fmt.Errorf("couldn't make a folder for the page: %w", err)
	}
	return write(filepath.Join(out, address), "index.html", []byte(text))
}

// sources matches a quoted name of a script or style sheet in a page's HTML.
var sources = regexp.MustCompile(`"([a-z-]+\.(?:ts|css))"`)

// options say how to bundle a script. files are those that the script fetches. The bundle is a module, or with global a
// script for a script tag that sets the variable doona, or with commonJS a CommonJS module.
type options struct {
	files            assets
	global, commonJS bool
	mapped           string // The script's name, if it has a source map.
}

// script bundles and minifies a TypeScript or CSS file. entry is its path relative to www/sdk.
func script(entry string, o options) ([]byte, error) {
	files, err := bundle(entry, o)
	if err != nil {
		return nil, err
	}
	return files[0].Contents, nil
}

// bundle does what script does, and returns the bundle and its source map.
func bundle(entry string, o options) ([]api.OutputFile, error) {
	build := api.BuildOptions{
		EntryPoints:       []string{filepath.Join("www", "sdk", entry)},
		Bundle:            true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		Define:            map[string]string{},
		Alias: map[string]string{ // the names of the npm packages that the examples import
			"doona":      "./www/sdk/index.ts",
			"web-vitals": "./www/vendor/web-vitals/web-vitals.js",
		},
		LogLevel: api.LogLevelSilent,
	}
	for name, file := range o.files {
		build.Define["DOONA."+name+".file"] = quoted("./" + file.File)
		build.Define["DOONA."+name+".integrity"] = quoted(file.Integrity)
	}
	if o.mapped != "" { // The name of the folder only makes the paths in the map relative to the repository.
		build.Sourcemap, build.Outfile = api.SourceMapLinked, filepath.Join("build", "www", o.mapped)
	}
	for asset, source := range map[string]string{"inPlace": "./in-place.js", "tokens": "./blind.js", "words": "./explain.js"} {
		if file, ok := o.files[asset]; ok && !o.commonJS {
			build.Plugins = append(build.Plugins, keepOutside(source, "./"+file.File))
		}
	}
	if o.global {
		build.Format, build.GlobalName = api.FormatIIFE, "doona"
		build.Inject = []string{filepath.Join("www", "sdk", "script-tag.ts")}
		build.Define["import.meta.url"] = "scriptURL"
		// A tag manager may run the script by eval, or as a module. A var makes no global there.
		build.Footer = map[string]string{"js": "globalThis.doona=doona;"}
	}
	if o.commonJS {
		build.Format, build.Platform = api.FormatCommonJS, api.PlatformNode
		build.Inject = []string{filepath.Join("www", "sdk", "common-js.ts")}
		build.Define["import.meta.url"] = "scriptURL"
	}
	result := api.Build(build)
	if err := failure(entry, result); err != nil {
		return nil, err
	}
	for i, file := range result.OutputFiles {
		if !strings.HasSuffix(file.Path, mapExt) {
			result.OutputFiles[i].Contents = bytes.ReplaceAll(file.Contents, []byte(ignoreMark), []byte(ignoreComments))
		}
	}
	return result.OutputFiles, nil
}

// ignoreMark is the name in www/sdk/files.ts that marks an import for bundlers to ignore. ignoreComments says that to
// webpack and Vite. Both have the same length, so that source maps stay right.
const (
	ignoreMark     = "addressThatBundlersMustLeaveToTheBrowserItself"
	ignoreComments = "/* webpackIgnore: true */   /* @vite-ignore */"
)

func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic("build: " + err.Error()) // a string can be encoded
	}
	return string(out)
}

// keepOutside returns a plugin that does not bundle the import of script. The bundle imports the file name at run time
// instead.
func keepOutside(script, name string) api.Plugin {
	return api.Plugin{Name: "keep " + script + " outside", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: "^" + regexp.QuoteMeta(script) + "$"},
			func(api.OnResolveArgs) (api.OnResolveResult, error) {
				return api.OnResolveResult{Path: name, External: true}, nil
			})
	}}
}

// noFiles replaces the constant DOONA in the SDK's own tests. They need no file names because they pass compiled
// modules.
const noFiles = `{"browser": {}, "small": {}, "full": {}, "worker": {}, "tokens": {}, "words": {}, "inPlace": {}}`

// bundleSpecs bundles every test www/sdk/NAME.spec.ts to out/NAME.spec.mjs.
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
		Define:       map[string]string{"DOONA": noFiles},
		Write:        true,
		LogLevel:     api.LogLevelSilent,
	})
	return failure("the tests", result)
}

// failure returns esbuild's errors and warnings as one error, or nil.
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
