package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
