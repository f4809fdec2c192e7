package relay_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
)

// keepFolder returns what restores a folder with all that was in its files.
func keepFolder(t *testing.T, folder string) (restore func()) {
	t.Helper()
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files[path], err = os.ReadFile(path)
		}
		return err
	}))
	return func() {
		require.NoError(t, os.RemoveAll(folder))
		for path, content := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
	}
}

// TestSetBackShowsByTheNextHop: a relay whose store, secret and keys were all set back to one moment learns
// it from the number that the next hop asks for. It takes, makes and hands out nothing more in that epoch,
// also after a restart; other epochs and tasks go on.
func TestSetBackShowsByTheNextHop(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2})
	other := c.Other(t, 1)
	post := func(c *relaytest.Cascade, epoch, value uint64) error {
		return c.Post(t.Context(), epoch, c.Seal(t, epoch, value), relaytest.Network(int(value)))
	}
	stop := c.Start(t, 0)
	for i := range uint64(5) {
		require.NoError(t, post(c, 0, i))
	}
	stop()
	restore := keepFolder(t, filepath.Dir(c.RelayConfig(1)))
	stop = c.Start(t, 0)
	for i := range uint64(15) {
		require.NoError(t, post(c, 0, 5+i))
	}
	for seq := range uint64(2) {
		b, _ := c.Pull(t, 0, seq)
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 0, 0, seq, b.Manifest))
	}
	stop()

	restore()
	stop = c.Start(t, 0)
	require.NoError(t, post(c, 0, 3000), "nobody has said anything yet")
	pull := func(epoch, seq uint64) error {
		_, err := c.Verifier.Pull(t.Context(), c.Open, 0, epoch, seq)
		return err
	}
	require.ErrorIs(t, pull(0, 0), problem.New(problem.NotSealed, ""), "it may be the next")
	require.ErrorIs(t, pull(1, 7), problem.New(problem.NotSealed, ""), "an epoch that has not begun is not behind")
	requireBehind := func() {
		for seq := range uint64(3) {
			require.GreaterOrEqual(t, requireProblem(t, problem.SetBack, pull(0, seq)).RetryAfter, time.Minute)
		}
		for i := range uint64(9) {
			require.GreaterOrEqual(t, requireProblem(t, problem.SetBack, post(c, 0, 4000+i)).RetryAfter, time.Minute)
		}
		require.NoError(t, post(other, 0, uint64(time.Now().UnixNano()%60000)))
		require.ErrorIs(t, pull(1, 0), problem.New(problem.NotSealed, ""))
		status := c.Status(t, 0)
		require.Equal(t, []relay.Finding{{Epoch: 0, Batch: 1,
			Reason: "the next hop has had a batch that is not here: everything was set back"}}, status.Findings)
		require.Zero(t, status.Epochs[0].Batches)
	}
	require.Error(t, pull(0, 1), "whoever asks for it has had batch 0, which is open here")
	requireBehind()
	stop()
	stop = c.Start(t, 0)
	requireBehind()

	stop()
	back, err := relay.OpenSetBack(c.Config(t, 0))
	require.NoError(t, err)
	require.Contains(t, back.Cause, "the next hop has had a batch that is not here")
	require.Len(t, back.Epochs, 2, "of both tasks: they were set back together")
	require.NoError(t, back.Close())
	stop = c.Start(t, 0)

	c.Clock.Advance(relaytest.Epoch + 10*time.Second)
	key := func() error {
		keys, err := keyfile.LoadHPKE(filepath.Join(filepath.Dir(c.RelayConfig(1)), "task0.keys"))
		require.NoError(t, err)
		_, err = keys.Key(0)
		return err
	}
	requireSoon(t, func() bool { return errors.Is(key(), keyfile.ErrErased) })
	require.NoError(t, post(c, 1, 1))
	requireProblem(t, problem.SetBack, pull(0, 0))
	require.Zero(t, c.Status(t, 0).Epochs[0].Batches, "what is left is not sealed either")
	stop()

	back, err = relay.OpenSetBack(c.Config(t, 0))
	require.NoError(t, err)
	require.NoError(t, errors.Join(back.End(t.Context()), back.Close()))
	c.Start(t, 0)
	requireProblem(t, problem.EpochEnded, pull(0, 0))
}
