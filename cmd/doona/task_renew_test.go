package main

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestRenew: `doona task renew` must sign the next task of a stream and send it to running relays. If a relay is down,
// the same command must send the same task later. The relays must then serve a batch of the new task.
func TestRenew(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream())})
	c.Start(t, 1)
	stop := c.Start(t, 0)
	first, owner := filepath.Join(c.Dir, "task0.bundle"), filepath.Join(c.Dir, "owner.key")
	keys := filepath.Join(c.Dir, "verifier", "next.keys")
	makeEpochKeys(t, c.VerifierSign(), 2, keys)
	renew := func(out string, epochs int) int {
		return cli.Run(root(), []string{"task", "renew", first, "--owner-key", owner, "--verifier-keys", keys + ".pub",
			"--epochs", strconv.Itoa(epochs), "--out", out})
	}
	june := filepath.Join(t.TempDir(), "june.bundle")
	require.Equal(t, 2, renew(june, 0))
	require.Equal(t, 1, renew(june, 3), "the verifier's list has two keys")
	require.NoFileExists(t, june)
	require.Zero(t, renew(june, 2))
	written, err := os.ReadFile(june)
	require.NoError(t, err)
	stop()
	require.Equal(t, 1, renew(june, 2), "the first relay is down")
	c.Start(t, 0)
	require.Zero(t, renew(june, 2))
	again, err := os.ReadFile(june)
	require.NoError(t, err)
	require.Equal(t, written, again, "the owner must sign a position only once")
	require.FileExists(t, june+".json")

	bundle, err := taskfile.ParseBundle(written)
	require.NoError(t, err)
	next := c.After(t, bundle)
	require.Equal(t, c.Open.Epochs.Over(), next.Open.Epochs.Start)
	c.Clock.Advance(2 * relaytest.Epoch)
	client, err := shufflerclient.New(next.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	for i := range 10 {
		r, err := client.Report(0, []float64{float64(i)})
		require.NoError(t, err)
		require.NoError(t, next.Post(t.Context(), 0, r.Body, relaytest.Network(i)))
	}
	batch, _ := next.Pull(t, 0, 0)
	require.Len(t, batch.Ciphertexts[0], 10)
	require.Equal(t, 1, renew(first, 2), "--out names the first task, not a later one")
	require.Equal(t, 1, cli.Run(root(), []string{"task", "renew", june, "--owner-key", owner, "--verifier-keys",
		keys + ".pub", "--epochs", "2", "--out", "x"}), "not the first task")
}

// TestRenewListsOrigins: if the first task allows other origins, the next task must accept reports from the new origin
// only. Otherwise `doona task renew` must not sign it.
func TestRenewListsOrigins(t *testing.T) {
	const before, after = "https://old.example", "https://new.example"
	for _, allow := range [][]string{{"clients.origins"}, nil} {
		c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, func(draft *task.Task) {
			relaytest.InStream(allow...)(draft)
			draft.Clients.Origins = []string{before}
		})})
		c.Start(t, 0)
		keys := filepath.Join(c.Dir, "verifier", "next.keys")
		makeEpochKeys(t, c.VerifierSign(), 2, keys)
		june := filepath.Join(t.TempDir(), "june.bundle")
		status := cli.Run(root(), []string{"task", "renew", filepath.Join(c.Dir, "task0.bundle"), "--owner-key",
			filepath.Join(c.Dir, "owner.key"), "--verifier-keys", keys + ".pub", "--epochs", "2", "--origin", after,
			"--out", june})
		if allow == nil {
			require.NotZero(t, status)
			require.NoFileExists(t, june)
			continue
		}
		require.Zero(t, status)
		written, err := os.ReadFile(june)
		require.NoError(t, err)
		bundle, err := taskfile.ParseBundle(written)
		require.NoError(t, err)
		next := c.After(t, bundle)
		require.Equal(t, []string{after}, next.Open.Clients.Origins)
		c.Clock.Advance(2 * relaytest.Epoch)
		post := func(origin string) error {
			return next.PostWith(t.Context(), 0, next.Seal(t, 0, 1), http.Header{"Origin": {origin}})
		}
		require.ErrorIs(t, post(before), problem.New(problem.ForeignOrigin, ""))
		require.NoError(t, post(after))
	}
}

// TestStatementCommands: one owner transfers a stream to a new key by command, and the new key ends the stream. The old
// key must not be able to end it. The command must fail if the first relay is down.
func TestStatementCommands(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream())})
	c.Start(t, 1)
	stop := c.Start(t, 0)
	dir := t.TempDir()
	first, next := filepath.Join(c.Dir, "task0.bundle"), filepath.Join(dir, "next.key")
	require.Zero(t, cli.Run(root(), []string{"keygen", "--out", next}))
	key, err := keyfile.LoadSign(next)
	require.NoError(t, err)
	public := task.SignKey(key.Public().(ed25519.PublicKey))
	state := func(command string, args ...string) int {
		return cli.Run(root(), append([]string{"task", command, first}, args...))
	}
	on, end := filepath.Join(dir, "on.statement"), filepath.Join(dir, "end.statement")
	owner := filepath.Join(c.Dir, "owner.key")
	require.Equal(t, 2, state("transfer", "--sign-key", owner, "--out", on), "no --to")
	require.Equal(t, 2, state("recover", "--sign-key", owner, "--out", on), "neither --to nor --stop")
	require.Equal(t, 1, state("transfer", "--sign-key", next, "--to", taskfile.FormatKey(public), "--out", on),
		"the stream was not transferred to this key yet")
	require.NoFileExists(t, on)
	require.Zero(t, state("transfer", "--sign-key", owner, "--to", taskfile.FormatKey(public), "--out", on))
	require.Zero(t, state("transfer", "--sign-key", owner, "--to", taskfile.FormatKey(public), "--out", on), "sent again")
	require.Equal(t, 1, state("stop", "--sign-key", owner, "--out", end), "the stream was transferred to another key")
	require.Zero(t, state("stop", "--sign-key", next, "--out", end))
	served, err := c.Verifier.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	require.True(t, served.Authority.Stopped)
	stop()
	require.Equal(t, 1, state("stop", "--sign-key", next, "--out", end), "the first relay is down")
}

// TestStatementsAskEveryRelay: a thief of the owner's key gives the second relay a newer task than the first relay has.
// The commands must then refuse to sign an owner's statement, because only one relay could accept it. They must sign
// the recovery key's statement, even after the thief sends a statement to the first relay. The stream must continue
// with the thief's task, which both relays then have.
func TestStatementsAskEveryRelay(t *testing.T) {
	dir := t.TempDir()
	keys := map[string]ed25519.PrivateKey{}
	path := func(name string) string { return filepath.Join(dir, name) }
	public := func(name string) string {
		return taskfile.FormatKey(task.SignKey(keys[name].Public().(ed25519.PublicKey)))
	}
	for _, name := range []string{"recovery", "thief", "next"} {
		require.Zero(t, cli.Run(root(), []string{"keygen", "--out", path(name)}))
		key, err := keyfile.LoadSign(path(name))
		require.NoError(t, err)
		keys[name] = key
	}
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream()),
		Config: func(_ int, cfg *relay.Config) { cfg.Tasks[0].Recovery = public("recovery") }})
	c.StartAll(t)
	first, owner := filepath.Join(c.Dir, "task0.bundle"), filepath.Join(c.Dir, "owner.key")
	state := func(command string, args ...string) int {
		return cli.Run(root(), append([]string{"task", command, first}, args...))
	}

	require.NoError(t, c.Hand(t.Context(), t, 1, c.Renew(t, 1, 1)))
	require.Equal(t, 1, state("transfer", "--sign-key", owner, "--to", public("next"), "--out", path("on")))
	require.NoFileExists(t, path("on"), "only the first relay could have accepted this statement")
	served, err := c.Verifier.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	key, _ := c.AsOwner(t)
	stolen, err := taskfile.NewStatement(c.Open.Trust(task.SignKey{}), served.Authority, served.Tasks[0],
		task.SignKey(keys["thief"].Public().(ed25519.PublicKey)), key)
	require.NoError(t, err)
	raw, err := codec.Marshal(stolen)
	require.NoError(t, err)
	require.NoError(t, c.Verifier.State(t.Context(), c.Open, c.Open.Task, 0, raw))

	recover := []string{"--sign-key", path("recovery"), "--to", public("next"), "--out", path("back")}
	require.Zero(t, state("recover", recover...))
	require.Zero(t, state("recover", recover...), "sent again, though the first relay serves no whole stream now")
	require.Zero(t, cli.Run(root(), []string{"task", "renew", first, "--owner-key", path("next"), "--epochs", "1",
		"--verifier-keys", "any", "--recovery", public("recovery"), "--out", path("back.1.bundle")}))
	for hop := range c.Open.Relays {
		served, err := c.Verifier.StreamAt(t.Context(), c.Open, c.Open.Task, hop,
			c.Open.Trust(task.SignKey(keys["recovery"].Public().(ed25519.PublicKey))))
		require.NoError(t, err)
		require.Len(t, served.Tasks, 2)
		require.EqualValues(t, 1, served.Authority.Era)
	}
	require.Zero(t, state("stop", "--sign-key", path("next"), "--recovery", public("recovery"), "--out", path("end")))
}

// TestRotateKey: `doona task rotate-key` must replace a relay's key for the next task, and refuse an existing output
// file. `doona task renew` must refuse a file that is no rotation, and a relay number that the task does not have.
func TestRotateKey(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, relaytest.InStream("relays.signKey"))})
	dir := t.TempDir()
	first, owner := filepath.Join(c.Dir, "task0.bundle"), filepath.Join(c.Dir, "owner.key")
	old, next, rotation := filepath.Join(c.Dir, "relay1", "sign.key"), filepath.Join(dir, "next"),
		filepath.Join(dir, "rotation")
	require.Zero(t, cli.Run(root(), []string{"keygen", "--out", next}))
	key, err := keyfile.LoadSign(next)
	require.NoError(t, err)
	to := taskfile.FormatKey(task.SignKey(key.Public().(ed25519.PublicKey)))
	sign := []string{"task", "rotate-key", first, "--sign-key", old, "--to", to, "--out", rotation}
	require.Zero(t, cli.Run(root(), sign))
	require.Equal(t, 1, cli.Run(root(), sign), "the file exists")

	cfg := c.Config(t, 0)
	cfg.SignKey, cfg.OldSignKeys = next, []string{cfg.SignKey}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	keys := filepath.Join(dir, "keys")
	makeEpochKeys(t, c.VerifierSign(), 1, keys)
	out := filepath.Join(dir, "june")
	renew := func(more ...string) int {
		return cli.Run(root(), append([]string{"task", "renew", first, "--owner-key", owner, "--verifier-keys", keys + ".pub",
			"--epochs", "1", "--out", out}, more...))
	}
	require.Equal(t, 1, renew(), "without --rotation, the new key must not sign for the relay")
	require.Equal(t, 2, renew("--replace", "2=https://x.example,"+to))
	require.Equal(t, 1, renew("--rotation", first))
	require.Zero(t, renew("--rotation", rotation))
	served, err := c.Verifier.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	require.Equal(t, to, taskfile.FormatKey(served.Tasks[1].Relays[0].SignKey))
}
