package relay_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestHandoverIsBounded: a relay must refuse a pull when its memory for batches being sent is used up.
func TestHandoverIsBounded(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	r, _ := c.StartRelay(t, 0)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	c.Pull(t, 0, 0)
	free := relay.FillHandouts(r)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
	requireProblem(t, problem.Overloaded, err)
	free()
	c.Pull(t, 0, 0)
}

// TestOneTaskFails: a batch that cannot be sealed must delay neither other tasks' batches nor the erasure of any keys.
func TestOneTaskFails(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2})
	r, err := relay.New(c.Config(t, 0))
	require.NoError(t, err)
	relay.FailSeals(r, c.Open.ID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	c.WaitReady(t, c.Config(t, 0).Admin)
	good := c.Other(t, 1)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
		require.NoError(t, good.Post(t.Context(), 0, good.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	require.Eventually(t, func() bool { return good.Status(t, 0).Epochs[0].Batches == 1 }, relaytest.Patience,
		10*time.Millisecond)
	require.True(t, relay.HasEpochKey(r, good.Open.ID, 0))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, good, 0, 0, "erased")
	require.Equal(t, "closed", c.Status(t, 0).Epochs[0].State)
	for task, id := range []task.ID{c.Open.ID, good.Open.ID} {
		require.False(t, relay.HasEpochKey(r, id, 0))
		keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, "relay1", fmt.Sprintf("task%d.keys", task)))
		require.NoError(t, err)
		_, err = keys.Key(0)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
	cancel()
	require.NoError(t, <-ended)
}

// TestStoreLost: after the loss of its store, a relay must not use the keys of begun epochs with a new store, which
// does not know what they have opened. Once these keys are erased, it must start with the others.
func TestStoreLost(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		c, other := relaytest.New(t, o), relaytest.New(t, o)
		first := c.StartFirst(t)
		stop := c.Start(t, 1)
		batch := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
		first.Serve(t, 0, 0, batch)
		c.Pull(t, 0, 0)
		stop()
		cfg := c.Config(t, 1)
		cfg.Store, cfg.Secret = other.Config(t, 1).Store, other.Config(t, 1).Secret
		_, err := relay.New(cfg)
		require.ErrorIs(t, err, keyfile.ErrStore)
		require.ErrorContains(t, err, "task0.keys")
		_, err = relay.Inspect(cfg)
		require.ErrorIs(t, err, keyfile.ErrStore, "check-config must report it too")

		lost, err := relay.OpenRolledBack(cfg)
		require.NoError(t, err)
		require.NoError(t, lost.End(t.Context()))
		require.NoError(t, lost.Close())
		c.Clock.Advance(relaytest.Epoch)
		r, err := relay.New(cfg)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		inspected, err := relay.Inspect(cfg)
		require.NoError(t, err)
		require.NoError(t, inspected.Close())
		_, err = relay.New(c.Config(t, 1))
		require.ErrorIs(t, err, keyfile.ErrStore, "the keys are bound to the new store")
	})
}
