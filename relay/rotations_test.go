package relay_test

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// handAll signs the next task with the rotations in r and hands it to all its relays, from the last to the first.
func handAll(t *testing.T, c *relaytest.Cascade, r handover.Renewal) *relaytest.Cascade {
	t.Helper()
	_, owner := c.AsOwner(t)
	r.Count, r.Now, r.Verifier = 1, c.Clock.Now(), c.NextVerifierKeys(t, 1, 1)
	bundle, err := owner.Renew(t.Context(), c.Open, r)
	require.NoError(t, err)
	return handOver(t, c, bundle)
}

// handOver hands a task to all its relays, from the last to the first.
func handOver(t *testing.T, c *relaytest.Cascade, bundle *taskfile.Bundle) *relaytest.Cascade {
	t.Helper()
	next := c.After(t, bundle)
	for hop := len(next.Open.Relays) - 1; hop >= 0; hop-- {
		require.NoError(t, c.Hand(t.Context(), t, hop, bundle))
	}
	return next
}

// fileOf makes a new signing key. It returns the path of its file and its public key.
func fileOf(t *testing.T) (string, task.SignKey) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sign.key")
	private, err := keyfile.NewSign(path)
	require.NoError(t, err)
	return path, task.SignKey(private.Public().(ed25519.PublicKey))
}

// TestRelayHandsOnItsKey: both relays of a stream change their signing keys. They must use the new keys in the stream's
// next task and the old keys in earlier tasks, and sign key lists that exist for the next task again.
func TestRelayHandsOnItsKey(t *testing.T) {
	newest := map[int]string{}
	c := relaytest.New(t, relaytest.Options{Task: relaytest.InStream(), Config: func(hop int, cfg *relay.Config) {
		if file := newest[hop]; file != "" {
			cfg.OldSignKeys, cfg.SignKey = []string{cfg.SignKey}, file
		}
	}})
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	_, owner := c.AsOwner(t)
	var rotations []task.Rotation
	for hop, stop := range stops {
		_, err := owner.NextKeys(t.Context(), c.Open, c.Open.Task, hop, 1)
		require.NoError(t, err)
		file, public := fileOf(t)
		newest[hop] = file
		rotations = append(rotations, taskfile.NewRotation(c.Open.ID, c.SignKey(t, hop), public))
		stop()
	}
	c.StartAll(t)
	_, err := owner.Renew(t.Context(), c.Open, handover.Renewal{Count: 1, Now: c.Clock.Now(),
		Verifier: c.NextVerifierKeys(t, 2, 1)})
	require.ErrorContains(t, err, "stranger", "a renewal without the rotations must fail")

	next := handAll(t, c, handover.Renewal{Rotations: rotations})
	fillEpoch(t, c, 0)
	c.Clock.Advance(2 * relaytest.Epoch)
	fillEpoch(t, next, 0)
	stream, err := shufflerclient.Follow(t.Context(), shufflerclient.Options{Stream: c.Open.StreamURL(c.Open.Task, 0),
		Owner: c.Owner, MaxEpsilon: 100, MaxDelta: 1})
	require.NoError(t, err)
	require.NotNil(t, stream)
}

// TestRelayIsReplaced: a relay leaves a stream, and a relay that was in no earlier task replaces it. The new relay must
// get the earlier tasks from the remaining relays.
func TestRelayIsReplaced(t *testing.T) {
	for _, replaced := range []int{0, 1} {
		file, public := fileOf(t)
		_, stranger := fileOf(t)
		known := []string{taskfile.FormatKey(stranger)}
		c := relaytest.New(t, relaytest.Options{Task: relaytest.InStream("relays.signKey"),
			Config: func(_ int, cfg *relay.Config) {
				cfg.Tasks[0].Candidates = known
			}})
		stop := c.Start(t, 1-replaced)
		cfg := joining(t, c, replaced, file)
		dir := filepath.Dir(cfg.Secret)
		cfg.Tasks[0].Candidates = []string{taskfile.FormatKey(public)}
		candidate, err := relay.New(cfg)
		require.NoError(t, err)
		c.Serve(t, candidate, cfg.Admin)

		_, owner := c.AsOwner(t)
		party := task.Party{URL: "http://" + cfg.Listen, SignKey: public}
		bundle, err := owner.Renew(t.Context(), c.Open, handover.Renewal{Count: 1, Now: c.Clock.Now(),
			Verifier: c.NextVerifierKeys(t, 1, 1), Replace: map[int]task.Party{replaced: party}})
		require.NoError(t, err)
		require.ErrorContains(t, c.Hand(t.Context(), t, 1-replaced, bundle), "invalid relays.", "not a candidate")
		stop()
		known = append(known, taskfile.FormatKey(public))
		c.Start(t, 1-replaced)
		next := handOver(t, c, bundle)
		c.Clock.Advance(2 * relaytest.Epoch)
		fillEpoch(t, next, 0)

		follow := func(candidates ...string) error {
			_, err := shufflerclient.Follow(t.Context(), shufflerclient.Options{Owner: c.Owner, MaxEpsilon: 100,
				Stream: c.Open.StreamURL(next.Open.Task, 0), Candidates: candidates})
			return err
		}
		require.NoError(t, follow(taskfile.FormatKey(public)))
		require.ErrorContains(t, follow(), "relays.")
		require.ErrorContains(t, follow(taskfile.FormatKey(c.Open.Verifier.SignKey)), "relays.")

		// A replaced relay that comes back accepts the task, too: clients may still ask it for the stream.
		c.Start(t, replaced)
		raw, err := os.ReadFile(filepath.Join(dir, "next", "1.bundle"))
		require.NoError(t, err)
		require.NoError(t, owner.Succeed(t.Context(), c.Open, c.Open.Task, replaced, raw))
		served, err := owner.StreamAt(t.Context(), c.Open, c.Open.Task, replaced, c.Open.Trust(task.SignKey{}))
		require.NoError(t, err)
		require.Len(t, served.Tasks, 2)
	}
}
