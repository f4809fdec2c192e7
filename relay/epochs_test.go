package relay_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

func rows(t *testing.T, c *relaytest.Cascade, hop int, table string) int {
	t.Helper()
	return query(t, c, hop, "SELECT COUNT(*) FROM "+table)
}

func query(t *testing.T, c *relaytest.Cascade, hop int, text string) (n int) {
	t.Helper()
	queryInto(t, c, hop, &n, text)
	return n
}

func queryInto(t *testing.T, c *relaytest.Cascade, hop int, into any, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(c.Config(t, hop).Store, "sqlite:")+
		"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow(text, args...).Scan(into))
}

func waitState(t *testing.T, c *relaytest.Cascade, hop int, epoch uint64, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, e := range c.Status(t, hop).Epochs {
			if e.Epoch == epoch {
				return e.State == want
			}
		}
		return false
	}, relaytest.Patience, 10*time.Millisecond, "hop %d, epoch %d: %s", hop, epoch, want)
}

// TestEpochEnd: all relays must destroy a last batch of fewer than n reports, with a manifest that says so. Then they
// must delete the epoch's keys, replay sets and counts of clients' reports.
func TestEpochEnd(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.StartAll(t)
	for i := range 13 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	_, chain := c.Pull(t, 0, 0)
	require.False(t, chain[1].Destroyed())
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 1)
	require.ErrorIs(t, err, handover.ErrNotSealed)
	require.NotZero(t, rows(t, c, 0, "runs"))
	require.NotZero(t, rows(t, c, 1, "seen"))
	late := c.Seal(t, 0, 99)

	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	batch, chain := c.Pull(t, 0, 1)
	require.Equal(t, onion.Lanes{{}}, batch.Ciphertexts)
	require.EqualValues(t, 3, chain[0].Submissions)
	require.Equal(t, []onion.LaneCount{{In: 3, Dropped: 3}}, chain[0].Lanes)
	require.Equal(t, []onion.LaneCount{{}}, chain[1].Lanes)
	for hop := range 2 {
		waitState(t, c, hop, 0, "erased")
		for _, table := range []string{"seen", "runs", "open"} {
			require.Zero(t, rows(t, c, hop, table), table)
		}
		keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, []string{"relay1", "relay2"}[hop], "task0.keys"))
		require.NoError(t, err)
		_, err = keys.Key(0)
		require.ErrorIs(t, err, keyfile.ErrErased)
		_, err = keys.Key(1)
		require.NoError(t, err)
	}
	_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 2)
	require.ErrorIs(t, err, handover.ErrEpochComplete)
	_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 5, 0)
	requireProblem(t, problem.EpochNotOpen, err)
	requireProblem(t, problem.EpochClosed, c.Post(t.Context(), 0, late, relaytest.Network(99)))
	require.NoError(t, c.Post(t.Context(), 1, c.Seal(t, 1, 1), relaytest.Network(1)), "a new epoch, a new quota")

	again, _ := c.Pull(t, 0, 0)
	require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, again.Manifest),
		"sealed batches must stay until the next hop confirms them")
}

// TestEndWhileDown: a first relay that was down at the end of an epoch must end the epoch when it starts.
func TestEndWhileDown(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	stop := c.Start(t, 0)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	stop()
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	c.StartAll(t)
	_, chain := c.Pull(t, 0, 0)
	require.True(t, chain[0].Destroyed())
	require.EqualValues(t, 1, chain[0].Submissions)
	waitState(t, c, 1, 0, "erased")
}

// TestOldestEndsFirst: old epochs must end and lose their keys, even while the relay is stuck sealing newer epochs.
func TestOldestEndsFirst(t *testing.T) {
	const last = 40
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) { draft.Epochs.Count = last + 1 }})
	serve := func(held func(epoch uint64) bool) (stop func()) {
		cfg := c.Config(t, 0)
		r, err := relay.New(cfg)
		require.NoError(t, err)
		relay.HoldSealing(r, held)
		return c.Serve(t, r, cfg.Admin)
	}
	stop := serve(func(uint64) bool { return true })
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	c.Clock.Advance((last - 1) * relaytest.Epoch)
	require.NoError(t, c.Post(t.Context(), last-1, c.Seal(t, last-1, 1), relaytest.Network(1)))
	c.Clock.Advance(relaytest.Epoch + 10*time.Second) // epoch last-1 is over by any clock
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), last, c.Seal(t, last, uint64(i)), relaytest.Network(i)))
	}
	stop()
	serve(func(epoch uint64) bool { return epoch >= last-1 }) // the last batches of both epochs
	waitState(t, c, 0, 0, "erased")
	waitState(t, c, 0, last-1, "closed")
	keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, "relay1", "task0.keys"))
	require.NoError(t, err)
	for _, epoch := range []uint64{0, last - 1} {
		_, err = keys.Key(epoch)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
}

// TestEarlyEnd: the first relay's signed end must not end an epoch before its time. If an end never comes, the second
// relay must give up and erase the epoch's key.
func TestEarlyEnd(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Config: func(_ int, cfg *relay.Config) { cfg.GiveUp = 10 * time.Minute }})
	first := c.StartFirst(t)
	c.Start(t, 1)
	first.End(0)
	waitPulls(t, first, 0, 0)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])

	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	waitState(t, c, 1, 0, "erased")
	c.Clock.Advance(relaytest.Epoch) // epoch 1 is over too, and the first relay does not sign its end
	waitPulls(t, first, 1, 0)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 1, 0)
	require.ErrorIs(t, err, handover.ErrNotSealed)
	c.Clock.Advance(10 * time.Minute)
	waitState(t, c, 1, 1, "erased")
	hasFinding(t, c, relay.Finding{Epoch: 1, Reason: "gave up waiting for the end of the epoch"})
}

// waitPulls waits until the second relay has processed a pull that began after this call.
func waitPulls(t *testing.T, first *relaytest.Rogue, epoch, seq uint64) {
	t.Helper()
	before := first.Pulls(epoch, seq)
	// Two more pulls: the pull in progress may still carry the old answer.
	requireSoon(t, func() bool { return first.Pulls(epoch, seq) > before+2 })
}

// TestConfirm: only the next hop may pull and confirm. A relay must delete a confirmed batch permanently. Until then
// every pull must return the same bytes.
func TestConfirm(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	stop := c.Start(t, 0)
	c.Start(t, 1)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, chain := c.Pull(t, 0, 0)
	again, _ := c.Pull(t, 0, 0)
	require.Equal(t, batch, again)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
	require.ErrorIs(t, err, handover.ErrUnauthorized, "the verifier is not the first relay's next hop")
	require.Error(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, chain[0].Ciphertexts), "another manifest")
	require.ErrorIs(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 1, batch.Manifest), handover.ErrUnauthorized,
		"another batch")
	again, _ = c.Pull(t, 0, 0)
	require.Equal(t, batch, again)
	for range 2 {
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, batch.Manifest))
		_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
		require.ErrorIs(t, err, handover.ErrConfirmed)
	}
	waitConfirmed(t, c, 0, 1)
	stop()
}

// waitConfirmed waits until a relay knows that want batches of epoch 0 were confirmed.
func waitConfirmed(t *testing.T, c *relaytest.Cascade, hop int, want uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		epochs := c.Status(t, hop).Epochs
		return len(epochs) > 0 && epochs[0].Confirmed == want
	}, relaytest.Patience, 10*time.Millisecond)
}

// TestFileModes: other users of the machine must not be able to read any file of a relay.
func TestFileModes(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	c.Start(t, 0)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	files, err := filepath.Glob(filepath.Join(c.Dir, "relay1", "*"))
	require.NoError(t, err)
	require.Greater(t, len(files), 4)
	for _, file := range files {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(file, ".new") { // the relay has just renamed it
			continue
		}
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, file)
	}
}
