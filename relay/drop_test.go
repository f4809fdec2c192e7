package relay_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/task"
)

// TestStreamsDropWhatHasExpired: relays let go of a stream's tasks once all their epochs have expired and another task
// has followed: their keys' files too, and for good. The chain, each position and its bundle stay, a restart changes
// nothing, and the stream goes on.
func TestStreamsDropWhatHasExpired(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.InStream(), Config: func(_ int, cfg *relay.Config) {
		cfg.GiveUp, cfg.Retention = time.Hour, 48*time.Hour
	}})
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	line := []*relaytest.Cascade{c}
	renew := func() *relaytest.Cascade {
		position := uint64(len(line))
		bundle := c.Renew(t, position, 1)
		for hop := len(c.Open.Relays) - 1; hop >= 0; hop-- {
			require.NoError(t, c.Hand(t.Context(), t, hop, bundle))
		}
		line = append(line, c.After(t, bundle))
		return line[position]
	}
	fillEpoch(t, c, 0)
	for range 2 {
		next := renew()
		c.Clock.Advance(time.Unix(int64(next.Open.Epochs.Start), 0).Sub(c.Clock.Now()) + time.Second)
		fillEpoch(t, next, 0)
	}
	_, owner := c.AsOwner(t)
	before, err := owner.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)

	c.Clock.Advance(60 * time.Hour)
	get := func(url string) int {
		resp, err := http.Get(url)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	dropped := func() {
		t.Helper()
		for hop := range c.Open.Relays {
			for _, gone := range line[:2] {
				requireSoon(t, func() bool { return get(gone.Open.TimeURL(hop)+"?nonce=x") == http.StatusNotFound })
				require.Equal(t, http.StatusOK, get(gone.Open.Relays[hop].URL+"/v1/tasks/"+gone.Open.ID.String()))
			}
			require.NotEqual(t, http.StatusNotFound, get(line[2].Open.TimeURL(hop)+"?nonce=x"), "the newest stays")
			folder := c.Config(t, hop).Tasks[0].Successors
			left, err := filepath.Glob(filepath.Join(folder, "*"))
			require.NoError(t, err)
			require.NotContains(t, left, filepath.Join(folder, "1-1.keys"))
			require.Contains(t, left, filepath.Join(folder, "1.bundle"))
			require.Contains(t, left, filepath.Join(folder, "2-1.keys"))
		}
	}
	dropped()
	for _, stop := range stops {
		stop()
	}
	c.StartAll(t)
	dropped()
	again, err := owner.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
	require.NoError(t, err)
	for i := range before.Tasks {
		require.Equal(t, before.Tasks[i].ID, again.Tasks[i].ID)
	}
	fillEpoch(t, renew(), 0)
}
