package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifest is the package.json of the npm package doona. Its name, version, description and license are from
// www/package.json.
type manifest struct {
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

// conditions are the conditions of an export. Types must come first.
type conditions struct {
	Types   string `json:"types"`
	Default string `json:"default"`
}

// binFile is the script that starts the program for the machine's platform (programs.go).
const binFile = "bin.mjs"

// pack writes the npm package: the built SDK from the folder www. www/pack.sh adds the type declarations, which need
// TypeScript.
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
	built, err := filepath.Glob(filepath.Join(www, "doona*"))
	if err != nil {
		return fmt.Errorf("couldn't list %s: %w", www, err)
	}
	for _, file := range append(built, "LICENSE", filepath.Join(www, "LICENSES.txt"), filepath.Join(www, testingFile),
		filepath.Join("www", "sdk", "README.md"), filepath.Join("www", "npm", binFile)) {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("couldn't read %s: %w", file, err)
		}
		if err := write(out, filepath.Base(file), content); err != nil {
			return err
		}
		m.add(filepath.Base(file))
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("couldn't encode package.json: %w", err)
	}
	return write(out, "package.json", append(text, '\n'))
}

func readManifest() (*manifest, error) {
	text, err := os.ReadFile(filepath.Join("www", "package.json"))
	if err != nil {
		return nil, fmt.Errorf("couldn't read package.json: %w", err)
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("couldn't decode package.json: %w", err)
	}
	m.Exports = map[string]any{
		".":               conditions{"./types/index.d.ts", "./" + moduleFile},
		"./testing":       conditions{"./types/testing.d.ts", "./" + testingFile},
		"./" + globalFile: "./" + globalFile,
		"./package.json":  "./package.json",
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

// add adds a file to the package. It exports a WASM module under a name without its hash, for workers that import it,
// and lists scripts that have side effects when they are loaded.
func (m *manifest) add(file string) {
	m.Files = append(m.Files, file)
	slices.Sort(m.Files)
	switch {
	case strings.HasSuffix(file, ".wasm"):
		m.Exports["./"+file[:strings.LastIndex(file, "-")]+".wasm"] = "./" + file
	case strings.HasPrefix(file, "doona-worker-"), file == globalFile:
		m.SideEffects = append(m.SideEffects, "./"+file)
	}
}
