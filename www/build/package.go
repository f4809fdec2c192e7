package main

import (
	"encoding/json"
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
	License     string         `json:"license"`
	Type        string         `json:"type"`
	Exports     map[string]any `json:"exports"`
	Types       string         `json:"types"`
	Unpkg       string         `json:"unpkg"`
	JSDelivr    string         `json:"jsdelivr"`
	SideEffects []string       `json:"sideEffects"`
	Files       []string       `json:"files"`
	Engines     map[string]any `json:"engines"`

	Bin                  map[string]string `json:"bin"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
}

// conditions is an entry of "exports" in package.json. Its condition "types" must come first.
type conditions struct {
	Types   string `json:"types"`
	Default string `json:"default"`
}

// binFile is the script in www/npm that `npx doona` runs. It starts the program for the machine's platform
// (programs.go).
const binFile = "bin.mjs"

const readmeFile = "README.md"

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
	built, err := filepath.Glob(filepath.Join(www, sdkFiles))
	if err != nil {
		return fmt.Errorf("couldn't list %s: %w", www, err)
	}
	for _, file := range append(built, "LICENSE", filepath.Join(www, "LICENSES.txt"), filepath.Join(www, testingFile),
		filepath.Join(www, integrityFile), filepath.Join("www", "npm", binFile)) {
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
// module's file name.
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
	if err != nil || len(modules) != 1 {
		return fmt.Errorf("couldn't find the module in %s: got %d, want 1", www, len(modules))
	}
	for _, filled := range []struct{ blank, value string }{
		{"sha256-HASH", integrityOf(global)}, {"doona-HASH.wasm", filepath.Base(modules[0])}} {
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
		".":                conditions{"./types/index.d.ts", "./" + moduleFile},
		"./testing":        conditions{"./types/testing.d.ts", "./" + testingFile},
		"./" + globalFile:  "./" + globalFile,
		"./package.json":   "./package.json",
		"./integrity.json": "./" + integrityFile,
	}
	m.Types, m.Unpkg, m.JSDelivr = "./types/index.d.ts", "./"+globalFile, "./"+globalFile
	m.Files = []string{"types"}
	m.Engines = map[string]any{"node": ">=22"}
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
	case strings.HasPrefix(file, "doona-worker-"), file == globalFile:
		m.SideEffects = append(m.SideEffects, "./"+file)
	}
}
