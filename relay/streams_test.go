package relay_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// fillEpoch posts reports that fill a batch in an epoch, and pulls the batch as the verifier.
func fillEpoch(t *testing.T, c *relaytest.Cascade, epoch uint64) {
	t.Helper()
	for i := range c.Open.Batch.Size {
		require.NoError(t, c.Post(t.Context(), epoch, c.Seal(t, epoch, i), relaytest.Network(int(i))))
	}
	b, chain := c.Pull(t, epoch, 0)
	require.Len(t, b.Ciphertexts[0], int(c.Open.Batch.Size))
	require.Len(t, chain, len(c.Open.Relays))
}

// TestStreamGoesOn: running relays must serve three successors without a restart and without a gap between epochs.
// After a restart they must serve the same stream.
func TestStreamGoesOn(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.InStream("name")})
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	now := c
	for position := range uint64(4) {
		if position > 0 {
			before := now.Open
			next := c.Renew(t, position, 1)
			for hop := len(c.Open.Relays) - 1; hop >= 0; hop-- {
				require.NoError(t, c.Hand(t.Context(), t, hop, next))
				require.NoError(t, c.Hand(t.Context(), t, hop, next), "the owner may hand it over again")
			}
			now = c.After(t, next)
			require.Equal(t, before.Epochs.Over(), now.Open.Epochs.Start)
			err := now.Post(t.Context(), 0, now.Seal(t, 0, 1), relaytest.Network(1))
			require.ErrorIs(t, err, problem.New(problem.EpochNotOpen, ""), "the task has not begun")
			c.Clock.Advance(relaytest.Epoch)
		}
		fillEpoch(t, now, 0)
		if position == 0 {
			c.Clock.Advance(relaytest.Epoch)
			fillEpoch(t, now, 1)
		}
	}
	_, owner := c.AsOwner(t)
	served, err := owner.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	require.Len(t, served.Tasks, 4)
	resp, err := http.Get(c.Open.StreamURL(c.Open.Task, 0))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var chain taskfile.Chain
	require.NoError(t, codec.Unmarshal(raw, &chain))
	require.Empty(t, chain.Tasks[0].KeyLists, "key lists of a task that is over are left out")
	_, err = chain.Tasks[3].OpenBlock(nil)
	require.NoError(t, err)
	for _, stop := range stops {
		stop()
	}
	c.StartAll(t)
	again, err := owner.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	require.Equal(t, served, again)
}

// TestStreamTakesAPositionOnce: a relay must refuse a task that breaks a rule of the stream. The first valid task must
// take the position permanently.
func TestStreamTakesAPositionOnce(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	stop := c.Start(t, 0)
	key, owner := c.AsOwner(t)
	good := c.Renew(t, 1, 2)
	sign := func(change func(*task.Task)) *taskfile.Bundle {
		open, err := good.Open(nil)
		require.NoError(t, err)
		next := *open.Task
		s := *next.Stream
		next.Stream = &s
		change(&next)
		b := *good
		b.Task = next.Canonical()
		b.Signature = signing.Sign(key, signing.Task, b.Task)
		return &b
	}
	for _, c2 := range []struct {
		name   string
		change func(*task.Task)
		want   problem.Name
	}{
		{"stream.before", func(t *task.Task) { t.Stream.Before[0] ^= 1 }, problem.Malformed},
		{"epochs.start", func(t *task.Task) { t.Epochs.Start-- }, problem.Malformed},
		{"batch.size", func(t *task.Task) { t.Batch.Size++ }, problem.Malformed},
		{"name", func(t *task.Task) { t.Name += "x" }, problem.Malformed},
		{"a later position", func(t *task.Task) { t.Stream.Position++ }, problem.WrongPosition},
	} {
		err := c.Hand(t.Context(), t, 0, sign(c2.change))
		require.ErrorIs(t, err, problem.New(c2.want, ""), c2.name)
		if c2.want == problem.Malformed {
			require.ErrorContains(t, err, c2.name)
		}
	}
	raw, err := good.Bytes()
	require.NoError(t, err)
	open, err := good.Open(nil)
	require.NoError(t, err)
	require.ErrorIs(t, c.Verifier.Succeed(t.Context(), c.Open, open.Task, 0, raw), handover.ErrUnauthorized)
	_, err = c.Verifier.NextKeys(t.Context(), c.Open, c.Open.Task, 0, 1)
	require.ErrorIs(t, err, handover.ErrUnauthorized)

	require.NoError(t, c.Hand(t.Context(), t, 0, good))
	later := sign(func(t *task.Task) { t.Epochs.Start++ })
	require.ErrorIs(t, c.Hand(t.Context(), t, 0, later), problem.New(problem.WrongPosition, ""))
	_, err = owner.NextKeys(t.Context(), c.Open, c.Open.Task, 0, 5)
	require.ErrorIs(t, err, problem.New(problem.WrongPosition, ""))
	stop()
	c.Start(t, 0)
	require.ErrorIs(t, c.Hand(t.Context(), t, 0, later), problem.New(problem.WrongPosition, ""))
	require.NoError(t, c.Hand(t.Context(), t, 0, good))
	fillEpoch(t, c, 0)
}

// TestStreamKeys: if the owner asks again, a relay must answer with the same key list; for another number of epochs,
// with another list. It must refuse a successor whose keys it did not make.
func TestStreamKeys(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	c.Start(t, 0)
	_, owner := c.AsOwner(t)
	ask := func(count uint64) task.KeyListHash {
		list, err := owner.NextKeys(t.Context(), c.Open, c.Open.Task, 0, count)
		require.NoError(t, err)
		return list.Hash()
	}
	one := ask(1)
	require.Equal(t, one, ask(1))
	require.NotEqual(t, one, ask(2))
	_, err := owner.NextKeys(t.Context(), c.Open, c.Open.Task, 0, 65537)
	require.ErrorIs(t, err, problem.New(problem.Malformed, ""))

	next := c.Renew(t, 1, 2)
	folder := c.Config(t, 0).Tasks[0].Successors
	require.NoError(t, os.Rename(filepath.Join(folder, "1-2.keys"), filepath.Join(folder, "away")))
	err = c.Hand(t.Context(), t, 0, next)
	require.ErrorIs(t, err, problem.New(problem.Malformed, ""))
	require.ErrorContains(t, err, "epochs.count")
	require.NoError(t, os.Rename(filepath.Join(folder, "away"), filepath.Join(folder, "1-2.keys")))
	require.NoError(t, c.Hand(t.Context(), t, 0, next))
}

// TestStreamNeedsItsFolder: a relay must not start if a stream has no separate folder, or another setting of a stream
// is bad.
func TestStreamNeedsItsFolder(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	cfg := c.Config(t, 0)
	cfg.Tasks[0].Successors = ""
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, "invalid successors")
	two := relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2, Task: relaytest.InStream()})
	cfg = two.Config(t, 0)
	cfg.Tasks[1].Successors = cfg.Tasks[0].Successors + "/."
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "a separate folder for each stream")
	cfg = relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2, Task: relaytest.InStream("relays.signKey")}).Config(t, 0)
	cfg.SignKey, _ = fileOf(t) // no task names this relay; it may join both streams
	for i := range cfg.Tasks {
		cfg.Tasks[i].HPKEKeys, cfg.Tasks[i].Successors = "", filepath.Join(t.TempDir(), "next")
	}
	joining, err := relay.New(cfg)
	require.NoError(t, err)
	require.NoError(t, joining.Close())
	separate := cfg.Tasks[1].Successors
	cfg.Tasks[1].Successors = cfg.Tasks[0].Successors + "/../next"
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "a separate folder for each stream")
	cfg.Tasks[1] = cfg.Tasks[0]
	cfg.Tasks[1].Successors = separate
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "each task only once")
	cfg.Tasks = cfg.Tasks[:1]
	cfg.Tasks[0].Candidates = []string{"ed25519:no"}
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "invalid candidates")
	plain := relaytest.New(t, relaytest.Options{Hops: 1})
	cfg = plain.Config(t, 0)
	cfg.Tasks[0].Recovery = plain.Owner
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "invalid recovery")
	cfg = plain.Config(t, 0)
	cfg.Tasks[0].Candidates = []string{plain.Owner}
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "invalid candidates")
	cfg = plain.Config(t, 0)
	cfg.Tasks[0].Successors = t.TempDir()
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "invalid stream")
}

// TestStreamAnswer: pages of any origin may read a stream, and no cache may keep it. The relay must say if it does not
// know a stream.
func TestStreamAnswer(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	c.Start(t, 0)
	resp, err := http.Get(c.Open.StreamURL(c.Open.Task, 0))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	missing, err := http.Get(strings.Replace(c.Open.StreamURL(c.Open.Task, 0), c.Open.ID.String(),
		strings.Repeat("0", 64), 1))
	require.NoError(t, err)
	defer missing.Body.Close()
	require.True(t, errors.Is(problem.Read(missing), problem.New(problem.UnknownTask, "")))
}
