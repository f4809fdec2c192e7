package relay_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// streamLine is the tasks of a stream so far, by position. All relays have accepted them.
type streamLine []*relaytest.Cascade

// renew hands the stream's next task to the relays, fills the task's first epoch, and returns the task.
func (l *streamLine) renew(t *testing.T) *relaytest.Cascade {
	t.Helper()
	c, position := (*l)[0], uint64(len(*l))
	bundle := c.Renew(t, position, 1)
	for hop := len(c.Open.Relays) - 1; hop >= 0; hop-- {
		require.NoError(t, c.Hand(t.Context(), t, hop, bundle))
	}
	next := c.After(t, bundle)
	*l = append(*l, next)
	if early := time.Unix(int64(next.Open.Epochs.Start), 0).Sub(c.Clock.Now()); early > 0 {
		c.Clock.Advance(early + time.Second)
	}
	fillEpoch(t, next, 0)
	return next
}

// isServed reports whether a relay still serves a task. Otherwise an unsigned request for an epoch's end gets 404.
func isServed(t *testing.T, base string, id task.ID) bool {
	t.Helper()
	resp, err := http.Get(base + "/v1/tasks/" + id.String() + "/epochs/0/end")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode != http.StatusNotFound
}

// soonExpired configures tasks in streams that expire within two days.
func soonExpired(o relaytest.Options) relaytest.Options {
	o.Task = relaytest.InStream()
	return expiring(o)
}

// TestTwinsDrop: two processes of a relay share a database and files. Both must drop a stream's expired task, and
// continue without a restart: they must still destroy the keys of batches that they seal afterwards.
func TestTwinsDrop(t *testing.T) {
	c := relaytest.New(t, soonExpired(relaytest.Options{Hops: 1, Postgres: true}))
	cfg := c.Config(t, 0)
	c.Start(t, 0)
	beside := cfg
	beside.Listen, beside.Admin = relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	runBeside(t, c, beside)
	fillEpoch(t, c, 0)
	line := streamLine{c}
	for range 2 {
		line.renew(t)
	}
	c.Clock.Advance(60 * time.Hour)
	keys := filepath.Join(cfg.Tasks[0].Successors, "1-1.keys")
	for _, at := range []string{cfg.Listen, beside.Listen} {
		requireSoon(t, func() bool { return !isServed(t, "http://"+at, line[1].Open.ID) })
	}
	require.NoFileExists(t, keys)
	last := line.renew(t)
	requireSoon(t, func() bool {
		rows, _, err := relay.Decryptable(cfg.Secret, last.Open.ID, 0)
		require.NoError(t, err)
		return !rows
	})
}

// TestDroppedKeysLeft: a relay was killed while it dropped a task. At its next start it must remove the task's keys.
func TestDroppedKeysLeft(t *testing.T) {
	c := relaytest.New(t, soonExpired(relaytest.Options{Hops: 1}))
	stop := c.Start(t, 0)
	fillEpoch(t, c, 0)
	line := streamLine{c}
	for range 2 {
		line.renew(t)
	}
	stop()
	folder := c.Config(t, 0).Tasks[0].Successors
	left := filepath.Join(folder, "1-1.keys")
	require.FileExists(t, left)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "1.dropped"), nil, 0o600))
	c.Start(t, 0)
	require.NoFileExists(t, left)
	require.FileExists(t, filepath.Join(folder, "2-1.keys"))
}

// TestStreamsDropWhatHasExpired: relays must drop a stream's task, and remove its key file, once all its epochs have
// expired and a later task has followed. The bundle at each position must remain, even after a restart, and the stream
// must continue.
func TestStreamsDropWhatHasExpired(t *testing.T) {
	c := relaytest.New(t, soonExpired(relaytest.Options{}))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	fillEpoch(t, c, 0)
	line := streamLine{c}
	for range 2 {
		line.renew(t)
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
	servedAt := func(open *taskfile.Open, hop int) bool { return isServed(t, open.Relays[hop].URL, open.ID) }
	dropped := func() {
		t.Helper()
		for hop := range c.Open.Relays {
			for _, dropped := range line[:2] {
				requireSoon(t, func() bool { return !servedAt(dropped.Open, hop) })
				_, err := c.Verifier.Time(t.Context(), dropped.Open, hop)
				require.NoError(t, err, "a client that knows no later task asks for the time with a dropped task")
				require.Equal(t, http.StatusOK, get(dropped.Open.Relays[hop].URL+"/v1/tasks/"+dropped.Open.ID.String()))
			}
			require.True(t, servedAt(line[2].Open, hop), "the newest task must be served")
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
	line.renew(t)
}
