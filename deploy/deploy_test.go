package deploy_test

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/relaytest"
)

// TestGenerated: the dashboard and the alerts are what go generate makes of the definitions.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "generator")
	build := exec.Command("go", "build", "-o", program, "./grafana")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	generate := exec.Command(program)
	generate.Dir = dir
	out, err = generate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"relay.json", "alerts.yaml"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("grafana", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run go generate ./deploy/grafana")
	}
}

// TestDashboardShowsWhatARelaySays: every metric of a running relay is on the dashboard, and every one
// on the dashboard and in the alerts is a running relay's.
func TestDashboardShowsWhatARelaySays(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	first := c.Seal(t, 0, 1)
	require.NoError(t, c.Post(t.Context(), 0, first, relaytest.Network(1)))
	require.Error(t, c.Post(t.Context(), 0, c.Seal(t, 0, 2), relaytest.Network(1)))
	resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	said := map[string]bool{"doona_relay_refused": true, "doona_relay_findings": true} // when there are any
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (doona_relay_\w+)`).FindAllStringSubmatch(string(text), -1) {
		said[m[1]] = true
	}
	defined := map[string]bool{}
	for _, m := range relay.Metrics() {
		defined[m.Name] = true
	}
	require.Equal(t, defined, said)
	for _, name := range []string{"relay.json", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join("grafana", name))
		require.NoError(t, err)
		shown := map[string]bool{}
		for _, metric := range regexp.MustCompile(`doona_relay_[a-z_]+`).FindAllString(string(text), -1) {
			metric = strings.TrimSuffix(metric, "_bucket")
			require.True(t, said[metric], "%s: %s", name, metric)
			shown[metric] = true
		}
		if name == "relay.json" {
			require.Equal(t, said, shown)
			require.True(t, json.Valid(text))
		} else {
			var rules map[string]any
			require.NoError(t, yaml.Unmarshal(text, &rules))
		}
	}
}

// buildStatic builds the relay as the Dockerfile does.
func buildStatic(t *testing.T, into string) {
	t.Helper()
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	command := `CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o`
	require.Contains(t, string(dockerfile), command+" /relay ./cmd/relay")
	build := exec.Command("sh", "-c", command+" "+into+" ../cmd/relay")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestStatic: what the Dockerfile builds needs no library and no file: it serves as an unprivileged
// user in a root folder that has only its own files.
func TestStatic(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	root := c.Dir
	program := filepath.Join(root, "relay")
	buildStatic(t, program)
	binary, err := elf.Open(program)
	require.NoError(t, err)
	defer binary.Close()
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, segment := range binary.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "it asks for a dynamic loader")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root folder")
	}
	const nobody = 65532
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}))
	cmd := exec.Command("/relay", "serve", "--config", "/relay1/relay.yaml")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	c.WaitReady(t, c.Config(t, 0).Admin)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

// TestUnit: systemd finds nothing wrong with the unit, and little exposed.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "relay")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	text, err := os.ReadFile("doona-relay.service")
	require.NoError(t, err)
	unit := filepath.Join(dir, "doona-relay.service")
	require.NoError(t, os.WriteFile(unit, []byte(strings.Replace(string(text), "/usr/local/bin/relay", program, 1)), 0o644))
	out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "doona-relay.service:", "%s", out)
}
