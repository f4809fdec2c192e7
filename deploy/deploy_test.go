package deploy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccy/go-yaml"

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
