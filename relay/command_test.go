package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/task"
)

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, executable, args...)
}

func runOwner(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, ownerProgram, args...)
}

func runProgram(t *testing.T, program string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); !ok {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

func TestCommandKeygen(t *testing.T) {
	dir := t.TempDir()
	sign, hpke := filepath.Join(dir, "a.sign"), filepath.Join(dir, "a.keys")
	var made struct {
		KeyID  string `json:"key_id"`
		Public string `json:"public"`
	}
	status, out, _ := run(t, "keygen", "--kind", "sign", "--out", sign, "--json")
	require.Zero(t, status)
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.True(t, strings.HasPrefix(made.Public, "ed25519:"))
	status, out, _ = run(t, "keygen", "--json", "--kind", "hpke", "--sign-key", sign, "--epochs", "3", "--out", hpke)
	require.Zero(t, status)
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.Equal(t, hpke+".pub", made.Public)
	require.FileExists(t, made.Public)
	for _, args := range [][]string{
		{"--kind", "sign"},
		{"--kind", "rsa", "--out", filepath.Join(dir, "b")},
		{"--kind", "hpke", "--out", filepath.Join(dir, "b")},
		{"--kind", "hpke", "--sign-key", sign, "--epochs", "0", "--out", filepath.Join(dir, "b")},
		{"--kind", "hpke", "--sign-key", sign, "--kem", "rot13", "--out", filepath.Join(dir, "b")},
		{"--king", "sign"},
	} {
		status, _, _ = run(t, append([]string{"keygen"}, args...)...)
		require.Equal(t, 2, status, "%v", args)
	}
	status, _, log := run(t, "keygen", "--kind", "sign", "--out", sign)
	require.Equal(t, 1, status, "keygen must not overwrite a file")
	require.Contains(t, log, "exists")
}

func TestCommandCheckAndStatus(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	config := c.RelayConfig(1)
	status, out, log := run(t, "check-config", "--config", config)
	require.Zero(t, status, log)
	require.Contains(t, out, `"test 0", hop 0`)
	require.Regexp(t, `a full batch takes up to 256 MB of memory, [\d.]+ kB of disk and [\d.]+ s of a core`, out)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	elsewhere := filepath.Join(filepath.Dir(config), "elsewhere.yaml")
	for _, field := range []string{"secret: ", "sqlite:"} { // folders that serve could not write to
		require.NoError(t, os.WriteFile(elsewhere, []byte(strings.Replace(string(text), field, field+"none/", 1)),
			0o600))
		status, _, log = run(t, "check-config", "--config", elsewhere)
		require.Equal(t, 1, status)
		require.Contains(t, log, "a folder that this user can write to")
	}
	stop := c.Start(t, 0)
	stop()
	secret := c.Config(t, 0).Secret
	require.NoError(t, os.Rename(secret, secret+".away"))
	status, _, log = run(t, "check-config", "--config", config)
	require.Equal(t, 1, status)
	require.Contains(t, log, "the file that the store was created with")
	require.NoFileExists(t, secret)
	_, err = relay.New(c.Config(t, 0)) // this start creates a new secret
	require.ErrorContains(t, err, "it belongs to another secret file")
	status, _, log = run(t, "check-config", "--config", config)
	require.Equal(t, 1, status)
	require.Contains(t, log, "the file that the store was created with")
	require.NoError(t, os.Rename(secret+".away", secret))
	startProcess(t, c, 0)
	startProcess(t, c, 1)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	waitConfirmed(t, c, 0, 1)
	for _, from := range [][]string{{"--config", config}, {"--admin", "http://" + c.Config(t, 0).Admin}} {
		status, out, log = run(t, append([]string{"health", "--json"}, from...)...)
		require.Zero(t, status, log)
		require.JSONEq(t, `{"ready": true}`, out)
	}
	elsewhere = "http://" + c.Config(t, 0).Admin
	for path, want := range map[string]string{"/away": "307 Temporary Redirect",
		"/down": "503 Service Unavailable: disk"} {
		asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if strings.HasPrefix(req.URL.Path, "/away") {
				http.Redirect(w, req, elsewhere+"/readyz", http.StatusTemporaryRedirect)
				return
			}
			http.Error(w, "disk", http.StatusServiceUnavailable)
		}))
		defer asked.Close()
		status, _, log = run(t, "health", "--admin", asked.URL+path)
		require.Equal(t, 1, status)
		require.Contains(t, log, "not ready: "+want)
	}
	for _, from := range [][]string{{"--config", config}, {"--admin", "http://" + c.Config(t, 0).Admin}} {
		status, out, log = run(t, append([]string{"status", "--json"}, from...)...)
		require.Zero(t, status, log)
		var got relay.Status
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, []relay.EpochStatus{{Epoch: 0, State: "open", Batches: 1, Confirmed: 1}}, got.Tasks[0].Epochs)
		status, out, _ = run(t, append([]string{"status"}, from...)...)
		require.Zero(t, status)
		require.Regexp(t, `test 0 +0 +0 +open +1 +1\n`, out)
	}
	for _, args := range [][]string{{"status"}, {"status", "--config", "a", "--admin", "b"},
		{"status", "--admin", "b"}, {"serve"}, {"serve", "--config", config, "--store", "oracle:x"}, {"frobnicate"},
		{"check-config", "x"}} {
		status, _, _ = run(t, args...)
		require.Equal(t, 2, status, "%v", args)
	}
	status, _, _ = run(t, "serve", "--config", filepath.Join(t.TempDir(), "none.yaml"))
	require.Equal(t, 1, status)
}

// TestBadConfig: the error for a bad configuration must name the bad field.
func TestBadConfig(t *testing.T) {
	good := relaytest.New(t, relaytest.Options{})
	text, err := os.ReadFile(good.RelayConfig(1))
	require.NoError(t, err)
	replace := func(old, new string) func(t *testing.T) string {
		return func(t *testing.T) string {
			require.Contains(t, string(text), old)
			return strings.Replace(string(text), old, new, 1)
		}
	}
	other := relaytest.New(t, relaytest.Options{})
	tests := []struct {
		name   string
		config func(t *testing.T) string
		want   string
	}{
		{"unknown key", replace("listen:", "lisen:"), "lisen"},
		{"trailing junk", replace("tasks:", "tasks: 7\ntasks:"), "tasks"},
		{"no port", replace("listen: \"127.0.0.1:", "listen: \""), "want host:port"},
		{"store", replace("sqlite:", "oracle:"), "invalid store"},
		{"skew", replace("skew: 1s", "skew: 6m"), "invalid skew 6m0s: want 1ms to 5m"},
		{"no unit", replace("pull_interval: 20ms", "pull_interval: 5"), "want a number with its unit"},
		{"pull interval", replace("pull_interval: 20ms", "pull_interval: 1ms"), "invalid pull_interval"},
		{"retention", replace("skew: 1s", "retention: 168h"), "invalid retention 168h0m0s: want more than give_up"},
		{"trusted proxies", replace("127.0.0.0/8", "127.0.0.1"), "invalid trusted_proxies"},
		{"no secret", replace("secret:", "# "), "invalid secret"},
		{"another owner", replace(good.Owner, other.Owner), "its owner is"},
		{"keys of another relay", replace("hpke_keys: task0.keys", "hpke_keys: ../relay2/task0.keys"),
			"not the one the task names"},
		{"signing key of nobody in the task", replace("sign.key", filepath.Join(other.Dir, "relay1", "sign.key")),
			"do not include this one"},
		{"the verifier's signing key", replace("sign.key", "../verifier/sign.key"), "do not include this one"},
		{"no task", func(t *testing.T) string { return string(text[:bytes.Index(text, []byte("tasks:"))]) },
			"invalid tasks"},
		{"a task twice", func(t *testing.T) string {
			return string(text) +
				string(text[bytes.Index(text, []byte("  - ")):])
		}, "each task only once"},
		{"not a bundle", replace("../task0.bundle", "../task0.json"), "task0.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(good.Dir, "relay1", "bad.yaml")
			require.NoError(t, os.WriteFile(path, []byte(tt.config(t)), 0o600))
			config, err := relay.LoadConfig(path)
			if err == nil {
				_, err = relay.New(config)
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestRefusedTasks: a relay must refuse a task whose submissions are too large for it. It must accept a task with huge
// batches.
func TestRefusedTasks(t *testing.T) {
	tests := map[string]struct {
		change func(*task.Task)
		want   string
	}{
		"huge batch": {func(t *task.Task) { t.Batch.Size = 1 << 31 }, ""},
		"huge submission": {func(t *task.Task) { t.Slots.PerLane, t.Slots.Lanes, t.Batch.Size = 1<<17, 2, 2 },
			"invalid slots"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Task: tt.change})
			r, err := relay.New(c.Config(t, 0))
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, r.Close())
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestKeylessRelay: a relay without the key of the current epoch must not start, and must say why.
func TestKeylessRelay(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	path := filepath.Join(c.Dir, "relay1", "task0.keys")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(raw, &file))
	file["keys"] = file["keys"].([]any)[1:]
	raw, err = json.Marshal(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	_, err = relay.New(c.Config(t, 0))
	require.ErrorContains(t, err, "has been erased")
}

// TestCommandLoad: the load generator sends valid reports, each from its own network. It must count the accepted
// reports, and give the reasons for refusals.
func TestCommandLoad(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		planned, err := planner.Draft(planner.Query{Name: "load", Query: task.Mean, Hi: 10, Batch: 100, Honest: 0.9,
			Epsilon: 2, Delta: 1e-4})
		require.NoError(t, err)
		planned.Epochs = draft.Epochs
		*draft = *planned
	}})
	p := startProcess(t, c, 0)
	args := []string{"load", "--json", "--task", c.TaskURL(0), "--owner", c.Owner, "--clients", "250", "--connections",
		"8"}
	var got struct {
		Offered, Accepted int
		Refused           map[string]int
		P50               float64 `json:"p50_ms"`
		P99               float64 `json:"p99_ms"`
		PeakRSS           int     `json:"relay_peak_rss_kb"`
	}
	status, out, log := runOwner(t,
		append(args, "--rate", "0", "--duration", "30s", "--pid", fmt.Sprint(p.cmd.Process.Pid))...)
	require.Zero(t, status, log)
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, 250, got.Offered)
	require.Equal(t, 250, got.Accepted)
	require.Positive(t, got.P50)
	require.GreaterOrEqual(t, got.P99, got.P50)
	require.Greater(t, got.PeakRSS, 1000)
	require.Eventually(t, func() bool { return c.Status(t, 0).Epochs[0].Batches == 2 }, relaytest.Patience,
		10*time.Millisecond)

	status, out, log = runOwner(t, append(args, "--rate", "500", "--duration", "400ms", "--admin", "http://"+p.admin)...)
	require.Equal(t, 1, status, "no report was accepted, because the networks have used up their quotas")
	require.Contains(t, log, "no report was accepted; the commonest answer: limit")
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Zero(t, got.Accepted, "the networks have used up their quotas")
	require.Equal(t, got.Offered, got.Refused["limit"])
	for _, args := range [][]string{{"--task", "x"}, {"--rate", "-1"}, {"--rate", "NaN"}, {"--clients", "0"},
		{"--duration", "1ms"}, {"--connections", "0"}, {"--forwarded-header", "Via"}} {
		status, _, log = runOwner(t, append([]string{"load", "--task", c.TaskURL(0), "--owner", c.Owner}, args...)...)
		require.Equal(t, 2, status, "%v", args)
		require.Contains(t, log, "invalid "+args[0][2:])
	}
	status, out, log = runOwner(t, append(args, "--rate", "500", "--duration", "100ms", "--admin",
		c.Open.Relays[0].URL)...)
	require.Equal(t, 1, status, "the public address has no metrics")
	require.NoError(t, json.Unmarshal([]byte(out), &got), "the command still prints its measurements")
	require.Contains(t, log, "couldn't read the relay's memory")
	status, _, _ = runOwner(t, "load", "--task", c.TaskURL(0), "--owner", "ed25519:x")
	require.Equal(t, 1, status)
}

// TestMetrics: metrics may show how many reports were refused only after the epoch is over, and must never name a
// client.
func TestMetrics(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	for range 3 {
		require.Error(t, c.Post(t.Context(), 0, c.Seal(t, 0, 99), relaytest.Network(1)))
	}
	waitConfirmed(t, c, 0, 1)
	metrics := func() string {
		resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/metrics")
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(raw)
	}
	text := metrics()
	require.Contains(t, text, `doona_relay_batches_total{destroyed="no"`)
	require.Contains(t, text, "doona_relay_queue_depth 0")
	require.Contains(t, text, "doona_relay_seal_seconds_count 1")
	require.NotContains(t, text, "doona_relay_refused{")
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, c, 0, 0, "erased")
	text = metrics()
	require.Regexp(t, `doona_relay_refused{owner="",reason="limit",task="[0-9a-f]{8}"} 4\n`, text)
	require.NotContains(t, text, "10.0.")
	resp, err := http.Get(c.Open.Relays[0].URL + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusNotFound, resp.StatusCode, "the public address must not serve metrics")
}
