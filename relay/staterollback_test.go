package relay_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// startStopped runs a relay that detects a state rollback and therefore never becomes ready.
func startStopped(t *testing.T, c *relaytest.Cascade, hop int) (stop func()) {
	t.Helper()
	r, err := relay.New(c.Config(t, hop))
	require.NoError(t, err)
	return c.ServeUnready(t, r)
}

func get(t *testing.T, c *relaytest.Cascade, hop int, path string) (status int, text string) {
	t.Helper()
	var resp *http.Response
	require.Eventually(t, func() (ok bool) {
		var err error
		resp, err = http.Get("http://" + c.Config(t, hop).Admin + path)
		return err == nil
	}, relaytest.Patience, 10*time.Millisecond)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// requireStateRollback asserts that a relay has stopped, and names the cause in every output.
func requireStateRollback(t *testing.T, c *relaytest.Cascade, hop int, cause string) {
	t.Helper()
	status, text := get(t, c, hop, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "state rollback detected: "+cause)
	_, text = get(t, c, hop, "/metrics")
	require.Contains(t, text, `doona_relay_rollback_detected{cause="`+cause+`"} 1`)
	require.Contains(t, text, "doona_relay_ready 0")
	_, text = get(t, c, hop, "/status")
	require.Contains(t, text, `"state_rollback":"`+cause)
	code, out, _ := run(t, "status", "--config", c.RelayConfig(hop+1))
	require.Zero(t, code)
	require.Contains(t, out, "state rollback detected: "+cause)
	code, _, log := run(t, "check-config", "--config", c.RelayConfig(hop+1))
	require.Equal(t, 1, code)
	require.Contains(t, log, "state rollback detected: "+cause)
	if hop == 0 {
		p := requireProblem(t, problem.StateRolledBack,
			c.Post(t.Context(), 0, c.Seal(t, 0, 99), relaytest.Network(99)))
		require.Equal(t, cause, p.Detail)
	}
	if hop == c.Open.VerifierHop()-1 {
		_, err := c.Verifier.Pull(t.Context(), c.Open, hop, 0, 0)
		requireProblem(t, problem.StateRolledBack, err)
	}
}

// TestEndUnconfigured: end-epochs must also end the epochs of a task that is no longer configured, whether the store
// still knows the task or is empty. The relay must then start.
func TestEndUnconfigured(t *testing.T) {
	for _, lost := range []bool{false, true} {
		c := relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2})
		other := c.Other(t, 1)
		stop := c.Start(t, 0)
		postSome(t, c, 0, 1)
		postSome(t, other, 0, 1)
		stop()
		before := relaytest.KeptOf(t, c, 0, "store")
		if lost {
			before = relaytest.Kept{}
		}
		stop = c.Start(t, 0)
		postSome(t, c, 1, 2)
		postSome(t, other, 1, 2)
		stop()
		before.Restore(t, c, 0, "store")
		cfg := c.Config(t, 0)
		cfg.Tasks = cfg.Tasks[:1]
		back, err := relay.OpenRolledBack(cfg)
		require.NoError(t, err)
		task := other.Open.ID.String()
		if lost {
			task = task[:32]
		}
		require.Contains(t, back.Epochs, relay.BegunEpoch{Task: task})
		require.NoError(t, back.End(t.Context()))
		require.NoError(t, back.Close())
		r, err := relay.New(cfg)
		require.NoError(t, err)
		status, err := r.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, status.StateRollback)
		require.NoError(t, r.Close())
		_, err = relay.OpenRolledBack(cfg)
		require.ErrorIs(t, err, relay.ErrNoRollback)
		_, kept, err := relay.Decryptable(cfg.Secret, other.Open.ID, 0)
		require.NoError(t, err)
		require.False(t, kept)
	}
}

// TestStateRollbackAtEachHop restores each subset of a relay's store, secret and keys from an older copy, at every hop.
// The relay must stop and name the cause. With all parts restored to the newest state, it must hand out the same bytes.
func TestStateRollbackAtEachHop(t *testing.T) {
	for _, hops := range []int{1, 2} {
		for hop := range hops {
			c := relaytest.New(t, relaytest.Options{Hops: hops})
			requireStateRollbackAt(t, c, hop)
		}
	}
}

func requireStateRollbackAt(t *testing.T, c *relaytest.Cascade, hop int) {
	t.Helper()
	all := slices.Sorted(maps.Keys(relaytest.KeptParts))
	stops := make([]func(), c.Open.VerifierHop())
	for i := range stops {
		stops[i] = c.Start(t, i)
	}
	postSome(t, c, 0, 5)
	stops[hop]()
	before := relaytest.KeptOf(t, c, hop, all...)
	stops[hop] = c.Start(t, hop)
	postSome(t, c, 5, 10)
	batch, _ := c.Pull(t, 0, 0)
	stops[hop]()
	after := relaytest.KeptOf(t, c, hop, all...)
	for parts := 1; parts < 7; parts++ {
		var restored []string
		for i, part := range all {
			if parts>>i&1 == 1 {
				restored = append(restored, part)
			}
		}
		after.Restore(t, c, hop, all...)
		before.Restore(t, c, hop, restored...)
		cause := map[bool]string{true: "the store is older than the ", false: " older than the store"}
		stop := startStopped(t, c, hop)
		_, text := get(t, c, hop, "/readyz")
		require.Contains(t, text, cause[slices.Contains(restored, "store")], "%v", restored)
		requireStateRollback(t, c, hop, strings.Split(text, ": ")[2])
		requireKept(t, c, hop, batch, slices.Contains(restored, "store"))
		stop()
	}
	after.Restore(t, c, hop, all...)
	c.Start(t, hop)
	again, _ := c.Pull(t, 0, 0)
	require.Equal(t, batch, again)
}

// requireKept asserts that a stopped relay signs no end, and deletes no batch that the next hop confirms. A rolled-back
// store does not know the batch.
func requireKept(t *testing.T, c *relaytest.Cascade, hop int, last *onion.Batch, rolledBack bool) {
	t.Helper()
	next, manifest := c.Verifier, last.Manifest
	if hop+1 < c.Open.VerifierHop() {
		next = handover.NewRequester(c.SignKey(t, hop+1), nil)
		m, err := last.Header()
		require.NoError(t, err)
		var source onion.SignedManifest
		require.NoError(t, codec.Unmarshal(m.Source, &source))
		manifest = source.Manifest
	}
	_, _, err := next.End(t.Context(), c.Open, hop, 0)
	requireProblem(t, problem.StateRolledBack, err)
	err = next.Confirm(t.Context(), c.Open, hop, 0, 0, manifest)
	want := map[bool]problem.Name{true: problem.Unauthorized, false: problem.StateRolledBack}[rolledBack]
	requireProblem(t, want, err)
}

// TestConfirmsOnceMarked: a relay may confirm a batch only when its rollback marks for the batch are on disk.
// Otherwise, after a state rollback here, both relays could have lost the batch.
func TestConfirmsOnceMarked(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	stop := c.Start(t, 1)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
	requireSoon(t, func() bool { return first.Confirmed(0, 0) })
	keys := filepath.Join(filepath.Dir(c.RelayConfig(2)), "task0.keys")
	requireSoon(t, func() bool { // repeated, because the relay may have been replacing the file
		require.NoError(t, os.Rename(keys, keys+".away"))
		time.Sleep(5 * c.Config(t, 1).PullInterval)
		_, err := os.Stat(keys)
		return errors.Is(err, fs.ErrNotExist)
	})
	first.Serve(t, 0, 1, first.Batch(t, 0, 1, 10, c.Slots(t, 0, span(10, 10)...)))
	requireSoon(t, func() bool { return c.Status(t, 1).Epochs[0].Batches == 2 })
	pulls := first.Pulls(0, 2)
	time.Sleep(20 * c.Config(t, 1).PullInterval)
	require.Equal(t, pulls, first.Pulls(0, 2), "the relay must not continue either")
	require.False(t, first.Confirmed(0, 1))
	require.NoError(t, os.Rename(keys+".away", keys))
	requireSoon(t, func() bool { return first.Confirmed(0, 1) })
	stop()
}

// postSome posts the reports from to to-1, each as its own client.
func postSome(t *testing.T, c *relaytest.Cascade, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
}

// TestStateRollbackCommand: end-epochs must print what it would end, and end it only with --confirm. The relay must
// then continue with the next epoch, and the next hop must have a finding. The same must hold for a lost store.
func TestStateRollbackCommand(t *testing.T) {
	for name, lose := range map[string]bool{"older": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			c.Start(t, 1)
			stop := c.Start(t, 0)
			postSome(t, c, 0, 3)
			old := relaytest.KeptOf(t, c, 0, "store")
			postSome(t, c, 3, 6)
			stop()
			code, _, log := run(t, "end-epochs", "--config", c.RelayConfig(1), "--confirm")
			require.Equal(t, 1, code)
			require.Contains(t, log, "no state rollback detected")
			if lose {
				old = relaytest.Kept{}
			}
			old.Restore(t, c, 0, "store")
			code, out, log := run(t, "end-epochs", "--config", c.RelayConfig(1))
			require.Zero(t, code, log)
			require.Contains(t, out, "to end these epochs permanently, add --confirm")
			if !lose {
				stop = startStopped(t, c, 0)
				requireStateRollback(t, c, 0, "the store is older than the secret")
				stop()
			}
			code, out, log = run(t, "end-epochs", "--config", c.RelayConfig(1), "--confirm")
			require.Zero(t, code, log)
			require.Contains(t, out, `"test 0": epoch 0`)
			require.NotContains(t, out, "epoch 1")
			c.Start(t, 0)
			requireProblem(t, problem.EpochClosed,
				c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
			requireFinding(t, c, 0, "state rollback here: the operator ended the epoch")
			requireFinding(t, c, 1, "the upstream relay was rolled back, and its operator ended the epoch")
			require.False(t, hasKey(t, c, 0, 0))
			require.True(t, hasKey(t, c, 0, 1))
			c.Clock.Advance(relaytest.Epoch)
			for i := range 10 {
				require.NoError(t, c.Post(t.Context(), 1, c.Seal(t, 1, uint64(i)), relaytest.Network(i)))
			}
			batch, _ := c.Pull(t, 1, 0)
			require.Len(t, c.Values(t, 1, batch)[0], 10)
		})
	}
}

// requireFinding waits until a relay has a finding about epoch 0 with this reason.
func requireFinding(t *testing.T, c *relaytest.Cascade, hop int, why relay.Reason) {
	t.Helper()
	requireSoon(t, func() bool {
		return slices.ContainsFunc(c.Status(t, hop).Findings,
			func(f relay.Finding) bool { return f.Epoch == 0 && f.Reason == why })
	})
}

// hasKey reports whether a relay's key file still has the HPKE key of an epoch.
func hasKey(t *testing.T, c *relaytest.Cascade, hop int, epoch uint64) bool {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(filepath.Dir(c.RelayConfig(hop+1)), "task0.keys"))
	require.NoError(t, err)
	_, err = keys.Key(epoch)
	return err == nil
}
