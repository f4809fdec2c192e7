package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestNewTaskWithTokens: an owner runs one command for a task with tokens, at relays that have approved one task.
// Clients fetch the task and their tokens, and report, and the verifier's page must show the estimate. The relays must
// refuse a second task and say why. After both relays restart, they must still serve the task, refuse spent tokens, and
// refuse a second task.
func TestNewTaskWithTokens(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens}.Approving(t, 1))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	dir := t.TempDir()
	keys, tokens := filepath.Join(dir, "v.keys"), filepath.Join(dir, "i.keys")
	makeEpochKeys(t, c.VerifierSign(), 1, keys)
	sign, err := keyfile.LoadSign(filepath.Join(c.Dir, "issuer", "sign.key"))
	require.NoError(t, err)
	_, err = issuer.NewKeys(tokens, 1, sign, nil)
	require.NoError(t, err)
	newTask := func(name string) (bundle string, err error) {
		bundle = filepath.Join(dir, name+".bundle")
		args := []string{"task", "new", "--query", "mean", "--protocol", "splitmix", "--range", "0,10", "--batch", "10",
			"--honest", "0.9", "--epsilon", "2", "--delta", "1e-4", "--epochs", "1", "--epoch-length", "1h", "--name",
			name, "--out", bundle, "--owner-key", filepath.Join(c.Dir, "owner.key"),
			"--verifier", taskfile.FormatKey(c.Open.Verifier.SignKey) + "," + keys + ".pub",
			"--issuer", c.Open.Clients.Issuer.URL + "," + taskfile.FormatKey(c.Open.Clients.Issuer.SignKey) + "," +
				tokens + ".pub"}
		for _, r := range c.Open.Relays {
			args = append(args, "--relay", r.URL+","+taskfile.FormatKey(r.SignKey))
		}
		cmd := root()
		cmd.SetOut(io.Discard)
		cmd.SetArgs(args)
		return bundle, cmd.ExecuteContext(t.Context())
	}
	requireFull := func() {
		t.Helper()
		bundle, err := newTask("july")
		require.ErrorIs(t, err, problem.New(problem.OwnerTaskLimit, ""))
		require.ErrorContains(t, err, "no task slot is free: 1 tasks and 0 waiting key lists, limit 1")
		require.NoFileExists(t, bundle)
	}
	june, err := newTask("june")
	require.NoError(t, err)
	requireFull()
	written, err := os.ReadFile(june)
	require.NoError(t, err)
	bundle, err := taskfile.ParseBundle(written)
	require.NoError(t, err)
	c = c.After(t, bundle)

	cfg := c.IssuerConfig()
	cfg.Tasks = []issuer.TaskConfig{{File: june, Owner: c.Owner, TokenKeys: tokens}}
	c.StartIssuer(t, cfg)
	pages := serveVerifier(t, c, server.TaskConfig{File: june, Owner: c.Owner, HPKEKeys: keys})

	client := func(network int) (*shufflerclient.Client, error) {
		header := http.Header{"X-Forwarded-For": {relaytest.Network(network)}}
		return shufflerclient.Connect(t.Context(), shufflerclient.Options{Task: c.Open.Relays[0].URL +
			endpoint.PathOf(c.Open.ID), Owner: c.Owner, MaxEpsilon: 10, Header: header,
			Tokens: shufflerclient.IssuerTokens(http.DefaultClient, header)})
	}
	submit := func(network int, value float64) *shufflerclient.Report {
		one, err := client(network)
		require.NoError(t, err)
		report, err := one.Report(0, []float64{value})
		require.NoError(t, err)
		require.NoError(t, one.Submit(t.Context(), report))
		require.NotEmpty(t, report.Token)
		return report
	}
	spent := submit(0, 0)
	for i := 1; i < 10; i++ {
		submit(i, float64(i))
	}
	waitForUsers(t, pages, c.Open, 10)

	for _, stop := range slices.Backward(stops) {
		stop()
	}
	c.StartAll(t)
	requireFull()
	one, err := client(0)
	require.NoError(t, err, "the relays must still serve the task after a restart")
	again, err := one.Report(0, []float64{1})
	require.NoError(t, err)
	again.Token = spent.Token
	require.ErrorIs(t, one.Submit(t.Context(), again), problem.New(problem.Limit, ""),
		"the token was spent before the restart")
	for i := range 10 {
		submit(10+i, float64(i))
	}
	report := waitForUsers(t, pages, c.Open, 20)
	require.NotNil(t, report.Estimate)
	require.Empty(t, report.Findings)
}

type estimated struct {
	Users    uint64
	Estimate *float64
	Findings []json.RawMessage
}

// serveVerifier runs a verifier of one task until the test ends, and returns the URL of its pages.
func serveVerifier(t *testing.T, c *relaytest.Cascade, of server.TaskConfig) string {
	t.Helper()
	cfg := server.Config{SignKey: c.VerifierSign(), Data: t.TempDir(), PullInterval: 20 * time.Millisecond,
		Tasks: []server.TaskConfig{of}}
	var err error
	cfg.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.AdminListener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(cfg)
	require.NoError(t, err)
	relaytest.Run(t, s.Run)
	return "http://" + cfg.Listener.Addr().String()
}

// waitForUsers waits until the verifier's report of a task covers this number of clients, and returns the report.
func waitForUsers(t *testing.T, pages string, open *taskfile.Open, users uint64) (out estimated) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get(pages + "/tasks/" + open.ID.String() + "/api/report")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		out = estimated{}
		return json.NewDecoder(resp.Body).Decode(&out) == nil && out.Users == users
	}, relaytest.Patience, 20*time.Millisecond)
	return out
}
