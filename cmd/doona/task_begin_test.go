package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestNewTaskToEstimate: an owner runs one command, and two running relays serve the task until its estimate. The
// operators have approved the owner for two tasks. If a relay was down when the task was sent, the same command must
// send it later. Keys made for a task that was never signed count as a task, so the relays must refuse "august".
func TestNewTaskToEstimate(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 2))
	c.Start(t, 1)
	stop := c.Start(t, 0)
	dir := t.TempDir()
	keys := filepath.Join(dir, "v.keys")
	makeEpochKeys(t, c.VerifierSign(), 2, keys)
	newTask := func(status int, out, name string, more ...string) {
		args := []string{"task", "new", "--query", "mean", "--protocol", "splitmix", "--range", "0,10", "--batch", "10", "--honest", "0.9",
			"--epsilon", "2", "--delta", "1e-4", "--epoch-length", "1h", "--name", name, "--out", out,
			"--origin", "https://shop.example", "--owner-key", filepath.Join(c.Dir, "owner.key"),
			"--verifier", taskfile.FormatKey(c.Open.Verifier.SignKey) + "," + keys + ".pub"}
		for _, r := range c.Open.Relays {
			args = append(args, "--relay", r.URL+","+taskfile.FormatKey(r.SignKey))
		}
		if len(more) == 0 {
			more = []string{"--epochs", "2"}
		}
		run(t, status, append(args, more...)...)
	}
	june := filepath.Join(dir, "june.bundle")
	newTask(2, june, "june", "--epochs", "2", "--relay", "http://x,y")
	newTask(1, june, "june", "--epochs", "3")
	require.NoFileExists(t, june, "the verifier's list has two keys")
	newTask(0, june, "june")
	written, err := os.ReadFile(june)
	require.NoError(t, err)
	require.FileExists(t, june+".json")
	stop()
	newTask(1, june, "june")
	c.Start(t, 0)
	newTask(0, june, "june")
	newTask(1, june, "july")
	newTask(1, june, "june", "--epochs", "2", "--start", "2030-01-01T00:00:00Z")
	again, err := os.ReadFile(june)
	require.NoError(t, err)
	require.Equal(t, written, again, "the owner must sign a task only once")

	bundle, err := taskfile.ParseBundle(written)
	require.NoError(t, err)
	served := c.After(t, bundle)
	client, err := shufflerclient.New(served.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	for i := range 10 {
		r, err := client.Report(0, []float64{float64(i)})
		require.NoError(t, err)
		require.NoError(t, served.Post(t.Context(), 0, r.Body, relaytest.Network(i)))
	}
	batch, _ := served.Pull(t, 0, 0)
	judge, err := keyfile.LoadHPKE(keys)
	require.NoError(t, err)
	v, err := verifier.New(served.Open, judge)
	require.NoError(t, err)
	require.NoError(t, v.Add(batch))
	report, err := v.Report()
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, 10, report.Users)
	require.NotNil(t, report.Estimate)

	newTask(1, filepath.Join(dir, "august.bundle"), "august")
	require.NoFileExists(t, filepath.Join(dir, "august.bundle"),
		"the keys made for the refused task with 3 epochs use up the second task slot")
}

// TestNewTaskAsksSomeRelays: `doona task new` must ask only the relays without KEYLIST for keys, and send only them the
// task. Here the first relay has a KEYLIST and does not run.
func TestNewTaskAsksSomeRelays(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 2}.Approving(t, 1))
	c.Start(t, 1)
	dir := t.TempDir()
	keys, first := filepath.Join(dir, "v.keys"), filepath.Join(dir, "r.keys")
	makeEpochKeys(t, c.VerifierSign(), 1, keys)
	makeEpochKeys(t, filepath.Join(c.Dir, "relay1", "sign.key"), 1, first)
	party := func(hop int) string {
		return c.Open.Relays[hop].URL + "," + taskfile.FormatKey(c.Open.Relays[hop].SignKey)
	}
	args := []string{"task", "new", "--query", "count", "--protocol", "splitmix", "--batch", "1000", "--epsilon", "1", "--delta", "1e-6",
		"--owner-key", filepath.Join(c.Dir, "owner.key"), "--verifier",
		taskfile.FormatKey(c.Open.Verifier.SignKey) + "," + keys + ".pub", "--relay", party(0) + "," + first + ".pub",
		"--out", filepath.Join(dir, "t")}
	run(t, 2, append(args, "--relay", party(1)+","+first+".pub", "--ca", first)...)
	run(t, 0, append(args, "--relay", party(1))...)
	require.Equal(t, "task", c.Statuses(t, 1)[0].Name)
}
