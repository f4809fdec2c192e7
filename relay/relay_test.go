package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestCascade sends two batches of reports through two relays. Every message must come out once.
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

// TestNothingMixes: the same clients report to two tasks and two epochs at once. Each quota and each batch must belong
// to one task and one epoch.
func TestNothingMixes(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2,
		Config: func(_ int, cfg *relay.Config) { cfg.Skew = 5 * time.Minute }})
	c.StartAll(t)
	other := c.Other(t, 1)
	c.Clock.Advance(relaytest.Epoch - time.Minute) // both epochs are open
	for i := range 10 {
		for epoch := range uint64(2) {
			require.NoError(t, c.Post(t.Context(), epoch, c.Seal(t, epoch, 100*epoch+uint64(i)), relaytest.Network(i)))
			require.NoError(t, other.Post(t.Context(), epoch, other.Seal(t, epoch, 1000+100*epoch+uint64(i)),
				relaytest.Network(i)))
		}
	}
	for epoch := range uint64(2) {
		batch, _ := c.Pull(t, epoch, 0)
		require.ElementsMatch(t, span(100*epoch, 10), c.Values(t, epoch, batch)[0])
		batch, _ = other.Pull(t, epoch, 0)
		require.ElementsMatch(t, span(1000+100*epoch, 10), other.Values(t, epoch, batch)[0])
	}
}

// TestOtherVersions: the relay must refuse requests and submissions of another version of the protocol.
func TestOtherVersions(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Start(t, 0)
	body := c.Seal(t, 0, 1)
	require.EqualValues(t, task.Version, body[1], "[version, envelope]")
	body[1]++
	p := requireProblem(t, problem.Malformed, c.Post(t.Context(), 0, body, relaytest.Network(1)))
	require.Contains(t, p.Detail, fmt.Sprintf("invalid version %d: want %d", task.Version+1, task.Version))
	other := strings.Replace(c.TaskURL(0), fmt.Sprintf("/v%d/", task.Version), fmt.Sprintf("/v%d/", task.Version+1), 1)
	resp, err := http.Get(other)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, problem.NotFound, problem.Read(resp).Name)
}

// TestCascadesOfAnyLength sends a batch in each of two epochs through 1, 3 and 5 relays. Every message must come out
// once, and every hop must erase the keys of the finished epoch.
func TestCascadesOfAnyLength(t *testing.T) {
	for _, hops := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(hops), func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Hops: hops})
			c.StartAll(t)
			for epoch := range uint64(2) {
				for i := range 10 {
					require.NoError(t, c.Post(t.Context(), epoch, c.Seal(t, epoch, 100*epoch+uint64(i)),
						relaytest.Network(i)))
				}
				batch, chain := c.Pull(t, epoch, 0)
				require.Len(t, chain, hops)
				require.ElementsMatch(t, span(100*epoch, 10), c.Values(t, epoch, batch)[0])
				require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, hops-1, epoch, 0, batch.Manifest))
				c.Clock.Advance(relaytest.Epoch + 2*time.Second)
				for hop := range hops {
					waitState(t, c, hop, epoch, "erased")
				}
			}
		})
	}
}
