package relay_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// keepFolder copies a folder's files and returns a function that restores them.
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

// TestStateRollbackShowsByAnotherBatch: a relay's whole state was rolled back by one batch. It makes another batch of
// that number before the next hop asks again. The next hop's pull of the following number carries its history, and must
// reveal the rollback. Otherwise reports that the relay no longer knows could be released twice.
func TestStateRollbackShowsByAnotherBatch(t *testing.T) {
	for hop := range 2 {
		t.Run(fmt.Sprintf("hop %d", hop), func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			var offer func(seq uint64, values []uint64)
			if hop == 0 {
				offer = func(_ uint64, values []uint64) {
					for _, v := range values {
						require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, v), relaytest.Network(int(v))))
					}
				}
			} else {
				first := c.StartFirst(t)
				offer = func(seq uint64, values []uint64) {
					first.Serve(t, 0, seq, first.Batch(t, 0, seq, 10, c.Slots(t, 0, values...)))
				}
			}
			next := c.Verifier
			if hop == 0 {
				next = handover.NewRequester(c.SignKey(t, 1), nil)
			}
			pull := func(seq uint64, before handover.HistoryDigest) (b *onion.Batch, err error) {
				requireSoon(t, func() bool {
					b, err = next.PullOnce(t.Context(), handover.Request{Open: c.Open, From: hop, Seq: seq,
						History: before, RecordManifest: func(*onion.SignedManifest) error { return nil }})
					return !errors.Is(err, handover.ErrNotSealed)
				})
				return b, err
			}
			stop := c.Start(t, hop)
			stop()
			restore := keepFolder(t, filepath.Dir(c.RelayConfig(hop+1)))
			stop = c.Start(t, hop)
			offer(0, span(0, 10))
			one, err := pull(0, handover.HistoryDigest{})
			require.NoError(t, err)
			before := handover.HashManifests(one.Manifest).History()
			require.NoError(t, next.Confirm(t.Context(), c.Open, hop, 0, 0, one.Manifest))
			stop()

			restore()
			stop = c.Start(t, hop)
			offer(0, span(20, 10))
			other, err := pull(0, handover.HistoryDigest{})
			require.NoError(t, err, "no request has shown the rollback yet")
			require.NotEqual(t, one.Manifest, other.Manifest)
			offer(1, span(0, 10))
			_, err = pull(1, before)
			requireProblem(t, problem.StateRolledBack, err)
			requireFindingAt(t, c, hop, relay.Finding{Batch: 1,
				Reason: "the next hop has a batch that this relay lost: state rollback"})
			stop()
			c.Start(t, hop)
			_, err = pull(1, handover.HashManifests(other.Manifest).History())
			requireProblem(t, problem.StateRolledBack, err)
			_, _, err = next.End(t.Context(), c.Open, hop, 0)
			requireProblem(t, problem.StateRolledBack, err)
			requireProblem(t, problem.StateRolledBack, next.Confirm(t.Context(), c.Open, hop, 0, 0, other.Manifest))
		})
	}
}

// TestStateRollbackShowsByAnEarlierBatch: a relay's whole state was rolled back by two batches. Then the upstream relay
// serves another first batch, but the same second batch, which is destroyed and thus has the same manifest as before.
// The next hop's history must reveal the other first batch.
func TestStateRollbackShowsByAnEarlierBatch(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	serve := func(seq uint64, lanes onion.Lanes) { first.Serve(t, 0, seq, first.Batch(t, 0, seq, 10, lanes)) }
	bad := c.Slots(t, 0, span(90, 10)...)
	for _, slot := range bad[0] {
		slot[len(slot)-1] ^= 1 // does not open
	}
	batches := func(n int) {
		requireSoon(t, func() bool { e := c.Status(t, 1).Epochs; return len(e) > 0 && int(e[0].Batches) == n })
	}
	c.Start(t, 1)()
	restore := keepFolder(t, filepath.Dir(c.RelayConfig(2)))
	stop := c.Start(t, 1)
	victims := c.Slots(t, 0, span(0, 10)...)
	serve(0, victims)
	serve(1, bad)
	batches(2)
	one, _ := c.Pull(t, 0, 0)
	two, _ := c.Pull(t, 0, 1)
	stop()

	restore()
	serve(0, c.Slots(t, 0, span(20, 10)...))
	serve(2, victims)
	c.Start(t, 1)
	batches(3)
	record := func(*onion.SignedManifest) error { return nil }
	pull := func(seq uint64, before handover.HistoryDigest) (*onion.Batch, error) {
		return c.Verifier.PullOnce(t.Context(), handover.Request{Open: c.Open, From: 1, Seq: seq, History: before,
			RecordManifest: record})
	}
	again, err := pull(1, handover.HistoryDigest{})
	require.NoError(t, err)
	require.Equal(t, two.Manifest, again.Manifest, "this request does not show the rollback")
	_, err = pull(2, handover.HashManifests(one.Manifest, two.Manifest).History())
	requireProblem(t, problem.StateRolledBack, err)
}

// TestStateRollbackShowsWhileItIsMade: the relay makes the requested batch and the previous one again while it answers
// a pull. It must still compare them with the next hop's history.
func TestStateRollbackShowsWhileItIsMade(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Start(t, 0)()
	restore := keepFolder(t, filepath.Dir(c.RelayConfig(1)))
	stop := c.Start(t, 0)
	postSome(t, c, 0, 10)
	one, _ := c.Pull(t, 0, 0)
	stop()
	restore()
	cfg := c.Config(t, 0)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	relay.MadeBetween(r)
	c.Serve(t, r, cfg.Admin)
	postSome(t, c, 10, 30)
	requireSoon(t, func() bool { return c.Status(t, 0).Epochs[0].Batches == 2 })
	_, err = c.Verifier.PullOnce(t.Context(), handover.Request{Open: c.Open, Seq: 1,
		History:        handover.HashManifests(one.Manifest).History(),
		RecordManifest: func(*onion.SignedManifest) error { return nil }})
	requireProblem(t, problem.StateRolledBack, err)
	code, answer := getAdmin(t, c, 0, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, code, "no task takes reports")
	require.Contains(t, answer, "not ready: task "+c.Open.ID.String()[:8]+" refuses all reports")
	_, metrics := getAdmin(t, c, 0, "metrics")
	require.Contains(t, metrics, "doona_relay_ready 0\n")
}

// getAdmin requests a path of the admin address of a running relay.
func getAdmin(t *testing.T, c *relaytest.Cascade, hop int, path string) (status int, text string) {
	t.Helper()
	resp, err := http.Get("http://" + c.Config(t, hop).Admin + "/" + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func requireFindingAt(t *testing.T, c *relaytest.Cascade, hop int, want relay.Finding) {
	t.Helper()
	require.Equal(t, []relay.Finding{want}, c.Status(t, hop).Findings)
}

// TestStateRollbackShowsByTheNextHop: a relay's store, secret and keys were all rolled back to one moment. The number
// that the next hop pulls must reveal it. The relay must accept, make and hand out nothing more in that epoch, even
// after a restart. Other epochs and tasks must continue.
func TestStateRollbackShowsByTheNextHop(t *testing.T) {
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
	require.NoError(t, post(c, 0, 3000), "no request has shown the rollback yet")
	pull := func(epoch, seq uint64) error {
		_, err := c.Verifier.Pull(t.Context(), c.Open, 0, epoch, seq)
		return err
	}
	require.ErrorIs(t, pull(0, 0), problem.New(problem.NotSealed, ""), "batch 0 may be the next one")
	require.ErrorIs(t, pull(1, 7), problem.New(problem.NotSealed, ""), "an epoch that has not begun is not rolled back")
	requireRolledBack := func() {
		for seq := range uint64(3) {
			require.GreaterOrEqual(t, requireProblem(t, problem.StateRolledBack, pull(0, seq)).RetryAfter, time.Minute)
		}
		for i := range uint64(9) {
			p := requireProblem(t, problem.StateRolledBack, post(c, 0, 4000+i))
			require.GreaterOrEqual(t, p.RetryAfter, time.Minute)
		}
		require.NoError(t, post(other, 0, uint64(time.Now().UnixNano()%60000)))
		require.ErrorIs(t, pull(1, 0), problem.New(problem.NotSealed, ""))
		status := c.Status(t, 0)
		require.Equal(t, []relay.Finding{{Epoch: 0, Batch: 1,
			Reason: "the next hop has a batch that this relay lost: state rollback"}}, status.Findings)
		require.Zero(t, status.Epochs[0].Batches)
		code, answer := getAdmin(t, c, 0, "readyz")
		require.Equal(t, http.StatusOK, code, "the other task takes reports")
		require.Contains(t, answer, "task "+c.Open.ID.String()[:8]+" refuses all reports: state-rolled-back: "+
			"the next hop has a batch that this relay lost")
		require.NotContains(t, answer, other.Open.ID.String()[:8])
		_, metrics := getAdmin(t, c, 0, "metrics")
		require.Contains(t, metrics,
			`doona_relay_rollback_detected{cause="the next hop has a batch that this relay lost: state rollback"} 1`)
		require.Contains(t, metrics, `doona_relay_refusing{problem="state-rolled-back"} 1`)
		_, printed, _ := run(t, "status", "--admin", "http://"+c.Config(t, 0).Admin)
		require.Contains(t, printed, "refuses all reports: state-rolled-back")
	}
	require.Error(t, pull(0, 1), "a pull of batch 1 shows that the hop has batch 0, which is open here")
	requireRolledBack()
	stop()
	stop = c.Start(t, 0)
	requireRolledBack()

	stop()
	back, err := relay.OpenRolledBack(c.Config(t, 0))
	require.NoError(t, err)
	require.Contains(t, back.Cause, "the next hop has a batch that this relay lost")
	require.Len(t, back.Epochs, 2, "epochs of both tasks: they were rolled back together")
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
	requireProblem(t, problem.StateRolledBack, pull(0, 0))
	require.Zero(t, c.Status(t, 0).Epochs[0].Batches, "the relay must not seal the open batch")
	stop()

	back, err = relay.OpenRolledBack(c.Config(t, 0))
	require.NoError(t, err)
	require.NoError(t, errors.Join(back.End(t.Context()), back.Close()))
	c.Start(t, 0)
	requireProblem(t, problem.EpochEnded, pull(0, 0))
	code, _ := getAdmin(t, c, 0, "readyz")
	require.Equal(t, http.StatusNoContent, code)
	_, metrics := getAdmin(t, c, 0, "metrics")
	require.Contains(t, metrics, `doona_relay_refusing{problem="state-rolled-back"} 0`)
	require.Contains(t, metrics,
		`doona_relay_rollback_detected{cause="the next hop has a batch that this relay lost: state rollback"} 0`)
}

// TestAnEndedEpochIsNotRolledBack: a store was rolled back, and the operator has ended the epochs, so batches are
// missing on purpose. When the next hop pulls its next batch, the relay must not report another state rollback: the
// operator would then end valid epochs, too.
func TestAnEndedEpochIsNotRolledBack(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	next := handover.NewRequester(c.SignKey(t, 1), nil)
	pull := func(seq uint64, manifests ...[]byte) (b *onion.Batch, err error) {
		requireSoon(t, func() bool {
			b, err = next.PullOnce(t.Context(), handover.Request{Open: c.Open, Seq: seq,
				History:        handover.HashManifests(manifests...).History(),
				RecordManifest: func(*onion.SignedManifest) error { return nil }})
			return !errors.Is(err, handover.ErrNotSealed)
		})
		return b, err
	}
	stop := c.Start(t, 0)
	postSome(t, c, 0, 3)
	old := relaytest.KeptOf(t, c, 0, "store")
	postSome(t, c, 3, 20)
	one, err := pull(0)
	require.NoError(t, err)
	two, err := pull(1, one.Manifest)
	require.NoError(t, err)
	stop()
	old.Restore(t, c, 0, "store")
	code, _, log := run(t, "end-epochs", "--config", c.RelayConfig(1), "--confirm")
	require.Zero(t, code, log)
	stop = c.Start(t, 0)
	_, err = pull(2, one.Manifest, two.Manifest)
	requireProblem(t, problem.EpochEnded, err)
	for _, f := range c.Status(t, 0).Findings {
		require.EqualValues(t, "state rollback here: the operator ended the epoch", f.Reason)
	}
	stop()
	code, _, log = run(t, "end-epochs", "--config", c.RelayConfig(1), "--confirm")
	require.Equal(t, 1, code)
	require.Contains(t, log, "no state rollback detected")
}
