package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programFile is the file name of the program cmd/doona in the npm package of a platform.
const programFile = "doona"

// platforms are the platforms for which the program is built. The key is Go's name of the platform, the value npm's
// names.
var platforms = map[string]struct{ os, cpu string }{
	"linux/amd64":  {"linux", "x64"},
	"linux/arm64":  {"linux", "arm64"},
	"darwin/amd64": {"darwin", "x64"},
	"darwin/arm64": {"darwin", "arm64"},
}

// programPackage returns the name of a platform's npm package. The package doona lists the packages of all platforms as
// optional dependencies, and npm installs only the one that fits.
func programPackage(platform string) string {
	p := platforms[platform]
	return "@doona/" + p.os + "-" + p.cpu
}

// programManifest is the package.json of a platform's program package.
type programManifest struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Description  string   `json:"description"`
	License      string   `json:"license"`
	OS           []string `json:"os"`
	CPU          []string `json:"cpu"`
	PreferUnplug bool     `json:"preferUnplugged"` // A program cannot run inside an archive.
	Files        []string `json:"files"`
}

// packPrograms builds the program for each wanted platform and writes the platform's npm package to a folder of out.
// www/pack.sh adds the licences of the code in the program.
func packPrograms(ctx context.Context, out string, wanted []string) error {
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("couldn't remove the old %s: %w", out, err)
	}
	main, err := readManifest()
	if err != nil {
		return err
	}
	for _, platform := range wanted {
		p, ok := platforms[platform]
		if !ok {
			return fmt.Errorf("invalid platform %q: want one of %s", platform,
				strings.Join(slices.Sorted(maps.Keys(platforms)), ", "))
		}
		dir := filepath.Join(out, p.os+"-"+p.cpu)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("couldn't make %s: %w", dir, err)
		}
		if err := buildProgram(ctx, platform, filepath.Join(dir, programFile)); err != nil {
			return err
		}
		m := programManifest{Name: programPackage(platform), Version: main.Version, License: main.License,
			Description: "The program of 'npx doona dev' for " + p.os + " on " + p.cpu + "; the package doona brings it",
			OS:          []string{p.os}, CPU: []string{p.cpu}, PreferUnplug: true,
			Files: []string{programFile, "LICENSE", "LICENSES.txt"}}
		text, err := json.MarshalIndent(&m, "", "  ")
		if err != nil {
			return fmt.Errorf("couldn't encode package.json: %w", err)
		}
		licence, err := os.ReadFile("LICENSE")
		if err != nil {
			return fmt.Errorf("couldn't read the licence: %w", err)
		}
		if err := write(dir, "LICENSE", licence); err != nil {
			return err
		}
		if err := write(dir, "package.json", append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// buildProgram builds cmd/doona for a platform. It uses the flags in the environment variable GOFLAGS; releases set
// -trimpath there. It leaves out PostgreSQL, because `doona dev` runs its relays on SQLite.
func buildProgram(ctx context.Context, platform, file string) error {
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags=nopostgres", "-ldflags=-s -w", "-o", file, "./cmd/doona")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't build the program for %s: %w\n%s", platform, err, out)
	}
	return nil
}
