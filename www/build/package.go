package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packageFile is the package.json of the npm package doona. Its name, version, description and license are from
// www/package.json.
type packageFile struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Description string         `json:"description"`
	Keywords    []string       `json:"keywords"`
	License     string         `json:"license"`
	Homepage    string         `json:"homepage"`
	Repository  map[string]any `json:"repository"`
	Bugs        map[string]any `json:"bugs"`
	Type        string         `json:"type"`
	Main        string         `json:"main"`   // For tools that do not read exports, such as Parcel.
	Module      string         `json:"module"` // The same, for those that prefer modules.
	Exports     map[string]any `json:"exports"`
	Types       string         `json:"types"`
	// TypesVersions is for TypeScript that does not read exports (moduleResolution node10).
	TypesVersions map[string]map[string][]string `json:"typesVersions"`
	Unpkg         string                         `json:"unpkg"`
	JSDelivr      string                         `json:"jsdelivr"`
	SideEffects   []string                       `json:"sideEffects"`
	Files         []string                       `json:"files"`
	Engines       map[string]any                 `json:"engines"`

	Bin                  map[string]string `json:"bin"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
}

// conditions is an entry of "exports" in package.json. Tools take the first condition that they know. Bundlers know
// "module": they take the module even where a page calls require, because the CommonJS file is only for Node.
type conditions struct {
	Module  string       `json:"module"`
	Import  typedExports `json:"import"`
	Require typedExports `json:"require"`
	Default string       `json:"default"`
}

// typedExports is a file and its types. The condition "types" must come first.
type typedExports struct {
	Types   string `json:"types"`
	Default string `json:"default"`
}

func exportsOf(types, module, commonJS string) conditions {
	module, commonJS = "./"+module, "./"+commonJS
	return conditions{Module: module, Import: typedExports{"./types/" + types + ".d.ts", module},
		Require: typedExports{"./types/" + types + ".d.cts", commonJS}, Default: module}
}

const readmeFile = "README.md"

const projectURL = "https://github.com/doona-dp/doona"

// binFile is the script that `npx doona` runs. It starts the program for the machine's platform (programs.go).
const binFile = "bin.mjs"

// extraFiles returns the paths of the package's files beside those that pages load. www is the folder of the built SDK.
func extraFiles(www string) []string {
	files := []string{"LICENSE", filepath.Join("www", "npm", binFile), filepath.Join("www", "npm", "copy.mjs"),
		filepath.Join("www", "sdk", "CHANGELOG.md")}
	for _, name := range []string{"LICENSES.txt", testingFile, moduleCommonJS, testingCommonJS, moduleFile + mapExt,
		globalFile + mapExt, integrityFile} {
		files = append(files, filepath.Join(www, name))
	}
	return files
}

// pack writes the npm package doona to out, with the built SDK from the folder www. www/pack.sh adds the type
// declarations, which need TypeScript.
func pack(www, out string) error {
	m, err := readManifest()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("couldn't remove the old %s: %w", out, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("couldn't make %s: %w", out, err)
	}
	built, err := sdkFiles(www)
	if err != nil {
		return err
	}
	for _, file := range append(built, extraFiles(www)...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("couldn't read %s: %w", file, err)
		}
		if err := write(out, filepath.Base(file), content); err != nil {
			return err
		}
		m.add(filepath.Base(file))
	}
	if err := packReadme(www, out); err != nil {
		return err
	}
	m.add(readmeFile)
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("couldn't encode package.json: %w", err)
	}
	return write(out, "package.json", append(text, '\n'))
}

// packReadme writes the SDK's README to out. It replaces the placeholders by this build's integrity hash and the WASM
// modules' file names.
func packReadme(www, out string) error {
	text, err := os.ReadFile(filepath.Join("www", "sdk", readmeFile))
	if err != nil {
		return fmt.Errorf("couldn't read the README: %w", err)
	}
	global, err := os.ReadFile(filepath.Join(www, globalFile))
	if err != nil {
		return fmt.Errorf("couldn't read %s: %w", globalFile, err)
	}
	modules, err := filepath.Glob(filepath.Join(www, "doona-????????????.wasm"))
	small, bad := filepath.Glob(filepath.Join(www, "doona-small-*.wasm"))
	if err = errors.Join(err, bad); err != nil || len(modules) != 1 || len(small) != 1 {
		return fmt.Errorf("couldn't find the modules in %s: got %d and %d, want 1 each", www, len(modules), len(small))
	}
	for _, filled := range []struct{ blank, value string }{{"sha256-HASH", integrityOf(global)},
		{"doona-HASH.wasm", filepath.Base(modules[0])}, {"doona-small-HASH.wasm", filepath.Base(small[0])}} {
		if !strings.Contains(string(text), filled.blank) {
			return fmt.Errorf("couldn't find %q in %s", filled.blank, readmeFile)
		}
		text = []byte(strings.ReplaceAll(string(text), filled.blank, filled.value))
	}
	return write(out, readmeFile, text)
}

func readManifest() (*packageFile, error) {
	text, err := os.ReadFile(filepath.Join("www", "package.json"))
	if err != nil {
		return nil, fmt.Errorf("couldn't read package.json: %w", err)
	}
	m := &packageFile{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("couldn't decode package.json: %w", err)
	}
	m.Exports = map[string]any{
		".":                exportsOf("doona", moduleFile, moduleCommonJS),
		"./set":            typedExports{"./types/set.d.ts", "./" + setFile}, // Only pages use it.
		"./testing":        exportsOf("testing", testingFile, testingCommonJS),
		"./" + globalFile:  "./" + globalFile,
		"./package.json":   "./package.json",
		"./integrity.json": "./" + integrityFile,
	}
	m.Types, m.Unpkg, m.JSDelivr = "./types/doona.d.ts", "./"+globalFile, "./"+globalFile
	m.TypesVersions = map[string]map[string][]string{"*": {"testing": {"./types/testing.d.ts"}, "set": {"./types/set.d.ts"}}}
	m.Main, m.Module = "./"+moduleCommonJS, "./"+moduleFile
	m.Keywords = []string{"analytics", "differential-privacy", "privacy", "shuffle-model", "statistics", "telemetry"}
	m.Homepage = projectURL + "#readme"
	m.Repository = map[string]any{"type": "git", "url": "git+" + projectURL + ".git", "directory": "www"}
	m.Bugs = map[string]any{"url": projectURL + "/issues"}
	m.Files = []string{"types"}
	// Old Nodes build pages and run `doona dev`: yarn 1 refuses to install a package whose engines do not fit. The SDK
	// itself needs Node 22, and says so where it runs.
	m.Engines = map[string]any{"node": ">=18"}
	m.Bin, m.OptionalDependencies = map[string]string{"doona": binFile}, map[string]string{}
	for platform := range platforms {
		m.OptionalDependencies[programPackage(platform)] = m.Version
	}
	return m, nil
}

// add lists a file in package.json. It exports a WASM module under a name without the hash, for workers that import the
// module. It lists a script under "sideEffects" if loading the script has side effects.
func (m *packageFile) add(file string) {
	m.Files = append(m.Files, file)
	slices.Sort(m.Files)
	switch {
	case strings.HasSuffix(file, ".wasm"):
		m.Exports["./"+file[:strings.LastIndex(file, "-")]+".wasm"] = "./" + file
	case strings.HasPrefix(file, "doona-worker-"), strings.HasPrefix(file, "doona-set-worker-"), file == globalFile:
		m.SideEffects = append(m.SideEffects, "./"+file)
	}
}
