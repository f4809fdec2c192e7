package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/relaytest"
	"github.com/doona-dp/doona/task"
)

// TestCascade sends two batches of reports through two relays: every message comes out once.
func TestCascade(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) {
		t.Batch.Size, t.Slots.Lanes, t.Slots.PerLane = 20, 2, 3
	}})
	c.StartAll(t)
	want := []uint64{}
	for i := range 40 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
		want = append(want, uint64(i))
	}
	got := [2][]uint64{}
	for seq := range uint64(2) {
		batch, chain := c.Pull(t, 0, seq)
		require.Len(t, chain, 2)
		require.EqualValues(t, 20, chain[1].Submissions)
		require.EqualValues(t, 60, chain[1].Lanes[1].Out)
		for lane, values := range c.Values(t, 0, batch) {
			require.Len(t, values, 20)
			got[lane] = append(got[lane], values...)
		}
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, seq, batch.Manifest))
	}
	require.ElementsMatch(t, want, got[0])
	require.ElementsMatch(t, want, got[1])
}

// TestNothingMixes sends reports of two tasks and two epochs by the same clients at the same time:
// quotas and batches are those of one task and epoch.
func TestNothingMixes(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2, Config: func(_ int, cfg *relay.Config) { cfg.Skew = 5 * time.Minute }})
	c.StartAll(t)
	other := c.Other(t, 1)
	c.Clock.Advance(relaytest.Epoch - time.Minute) // both epochs are open
	for i := range 10 {
		for epoch := range uint64(2) {
			require.NoError(t, c.Post(t.Context(), epoch, c.Seal(t, epoch, 100*epoch+uint64(i)), relaytest.Network(i)))
			require.NoError(t, other.Post(t.Context(), epoch, other.Seal(t, epoch, 1000+100*epoch+uint64(i)), relaytest.Network(i)))
		}
	}
	for epoch := range uint64(2) {
		batch, _ := c.Pull(t, epoch, 0)
		require.ElementsMatch(t, span(100*epoch, 10), c.Values(t, epoch, batch)[0])
		batch, _ = other.Pull(t, epoch, 0)
		require.ElementsMatch(t, span(1000+100*epoch, 10), other.Values(t, epoch, batch)[0])
	}
}
