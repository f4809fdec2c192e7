package relay_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier/server"
)

// startVerifier runs the verifier of a cascade's task and returns the URL of the task's page.
func startVerifier(t *testing.T, c *relaytest.Cascade, ca string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{Listener: listener, SignKey: c.VerifierSign(), Data: t.TempDir(), CA: ca,
		PullInterval: 20 * time.Millisecond, Tasks: []server.TaskConfig{{File: filepath.Join(c.Dir, "task0.bundle"),
			Owner: c.Owner, HPKEKeys: c.VerifierKeys("task0")}}})
	require.NoError(t, err)
	relaytest.Run(t, s.Run)
	return "http://" + listener.Addr().String() + "/tasks/" + c.Open.ID.String()
}

// TestLoadCompares: the load generator knows its clients' true values, and must find the verifier's estimate near them.
// The clients use tokens and a private certificate authority. It must not compare if the estimate has other clients'
// reports.
func TestLoadCompares(t *testing.T) {
	a := newAuthority(t)
	files := a.issue(t)
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(50, relaytest.WithTokens), CA: a.file,
		Config: func(_ int, cfg *relay.Config) { cfg.TLS, cfg.CA = files, a.file }})
	c.StartAll(t)
	c.StartIssuer(t, c.IssuerConfig())
	waitForKey(t, c)
	args := []string{"load", "--json", "--task", c.TaskURL(0), "--owner", c.Owner, "--ca", a.file, "--rate", "0",
		"--duration", "1m", "--connections", "8", "--values", "zipf", "--report", startVerifier(t, c, a.file),
		"--clients"}
	status, out, log := runOwner(t, append(args, "100")...)
	require.Zero(t, status, log)
	var got struct {
		Accepted   int
		Comparison struct {
			Users           int
			Truth, Estimate float64
			Worst           float64 `json:"worst_standard_errors"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, 100, got.Accepted)
	require.Equal(t, 100, got.Comparison.Users)
	require.InDelta(t, 1.85, got.Comparison.Truth, 1.5, "the mean of Zipf's law is 18 % of the range")
	require.NotEqual(t, got.Comparison.Truth, got.Comparison.Estimate)
	require.Less(t, got.Comparison.Worst, 6.)
	require.Positive(t, got.Comparison.Worst)

	status, _, log = runOwner(t, append(args, "100")...)
	require.Equal(t, 1, status)
	require.Contains(t, log, "already has an estimate of 100 other clients")
}

// TestLoadLeftOver: clients that do not fill a batch are in no estimate. The load generator must refuse their number in
// advance if it can, or else say so at once, with its measurements.
func TestLoadLeftOver(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(100)})
	c.StartAll(t)
	args := []string{"load", "--task", c.TaskURL(0), "--owner", c.Owner, "--report", startVerifier(t, c, ""), "--clients"}
	status, out, log := runOwner(t, append(args, "101")...)
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Contains(t, log, "invalid clients 101: want a multiple of 100, the task's batch size, with --report")
	status, out, log = runOwner(t, append(args, "100", "--rate", "30", "--duration", "1s")...)
	require.Equal(t, 1, status)
	require.Contains(t, out, "accepted  ")
	require.Regexp(t, `couldn't compare with the truth: \d\d? of 100 reports were accepted in 1s, and batches have 100`,
		log)
}
