package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Setup holds resources that several groups share: built site, browser, server. It makes each on first use.
type Setup struct {
	site     string // folder of the built pages
	chromium string
	peers    *bool
	server   *server
	folders  []string
	wanted   func(name string) bool // whether --rows selects a row
}

// Close stops the server and deletes the folders that Folder made.
func (s *Setup) Close() {
	if s.server != nil {
		s.server.Close()
	}
	for _, dir := range s.folders {
		os.RemoveAll(dir)
	}
}

// progress prints a line about a slow step on standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// Site returns the folder with the SDK and the WebAssembly modules. The first call builds them.
func (s *Setup) Site(ctx context.Context) (string, error) {
	if s.site != "" {
		return s.site, nil
	}
	progress("building the modules and the SDK")
	dir := filepath.Join("build", "bench")
	if _, err := command(ctx, "go", "run", "./www/build", "-out", dir); err != nil {
		return "", err
	}
	s.site = dir
	return dir, nil
}

// Folder makes a new temporary folder for a group's files. Close deletes it.
func (s *Setup) Folder(name string) (string, error) {
	dir, err := os.MkdirTemp("", "doona-bench-"+name)
	if err != nil {
		return "", fmt.Errorf("couldn't make a folder: %w", err)
	}
	s.folders = append(s.folders, dir)
	return dir, nil
}

// Chromium returns the path of Chromium. It installs Chromium and the Node packages if they are missing.
func (s *Setup) Chromium(ctx context.Context) (string, error) {
	if s.chromium != "" {
		return s.chromium, nil
	}
	progress("setting up Chromium and the Node packages")
	out, err := command(ctx, "./www/setup.sh")
	s.chromium = strings.TrimSpace(out)
	return s.chromium, err
}

// Peers installs the packages of the peers on its first call, and reports whether that succeeded. If it failed, the
// rows have no peer.
func (s *Setup) Peers(ctx context.Context) bool {
	if s.peers == nil {
		progress("installing the peers' packages")
		_, err := command(ctx, "npm", "ci", "--prefix", filepath.Join("bench", "peers"),
			"--omit-lockfile-registry-resolved", "--no-audit", "--no-fund", "--loglevel=error")
		if err != nil {
			progress("no peers: %v", err)
		}
		s.peers = ptr(err == nil)
	}
	return *s.peers
}

// command runs a program to its end and returns its standard output.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("couldn't run %s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
