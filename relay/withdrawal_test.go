package relay_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
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
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// withdraw withdraws a cascade's task at a relay.
func withdraw(t *testing.T, c *relaytest.Cascade, hop int) error {
	t.Helper()
	_, owner := c.AsOwner(t)
	return owner.Withdraw(t.Context(), c.Open.Relays[hop], c.Open.ID)
}

// keysLeft counts the epochs of a task whose private keys a relay still has on disk.
func keysLeft(t *testing.T, c *relaytest.Cascade, hop int) (n int) {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(c.Config(t, hop).Owners[0].Folder, c.Open.ID.String(), "hpke.keys"))
	require.NoError(t, err)
	defer keys.Close()
	for epoch := range c.Open.Epochs.Count {
		if _, err := keys.Key(epoch); !errors.Is(err, keyfile.ErrErased) {
			n++
		}
	}
	return n
}

// requireWithdrawn requires that the first relay serves no page with a task, and refuses reports of its epochs.
func requireWithdrawn(t *testing.T, c *relaytest.Cascade) {
	t.Helper()
	for epoch := range c.Open.Epochs.Count {
		requireProblem(t, problem.EpochClosed, c.Post(t.Context(), epoch, c.Seal(t, epoch, 1), relaytest.Network(700)))
	}
	resp, err := http.Get(c.Open.URL())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestWithdrawTask: an owner withdraws a task while its epoch is open. At once the relay must take no reports of any
// epoch. All its keys must go, also those of epochs that have not begun, without the clock. The batch that was made
// must still reach the verifier, and each epoch end without a finding. The slot must be free. The relay must not serve
// the task again: not when the owner hands it over again, not after a restart, and not after its files are gone.
func TestWithdrawTask(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Epochs.Count = 40 },
		Config: func(_ int, cfg *relay.Config) { cfg.GiveUp, cfg.Retention = time.Hour, 3*time.Hour },
	}.Approving(t, 1))
	stops := []func(){c.Start(t, 0), c.Start(t, 1)}
	next := c.Named("one")
	bundle := c.Sign(t, next)
	for hop := range 2 {
		require.NoError(t, c.Begin(t.Context(), t, hop, bundle))
	}
	one := c.After(t, bundle)
	fillEpoch(t, one, 0)
	for i := range 3 {
		require.NoError(t, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(500+i)))
	}
	require.Equal(t, 40, keysLeft(t, one, 0))
	for hop := range 2 {
		require.NoError(t, withdraw(t, one, hop))
		require.NoError(t, withdraw(t, one, hop), "repeating it does no harm")
	}
	requireWithdrawn(t, one)
	for hop := range 2 {
		requireSoon(t, func() bool { return keysLeft(t, one, hop) == 0 })
	}
	for epoch, batches := range map[uint64]uint64{0: 2, 1: 0, 39: 0} {
		requireSoon(t, func() bool {
			source, chain, err := one.Verifier.End(t.Context(), one.Open, 1, epoch)
			return err == nil && len(source.End) > 0 && len(chain) == 2 && chain[1].Batches == batches
		})
	}
	_, chain := one.Pull(t, 0, 1)
	require.True(t, chain[0].Destroyed(), "no report of the open batch is released")
	status := func(hop int) relay.TaskStatus { return c.Statuses(t, hop)[0] }
	for hop := range 2 {
		requireSoon(t, func() bool { return status(hop).Erasing == 0 })
		require.True(t, status(hop).Withdrawn)
		require.Empty(t, status(hop).Findings)
		require.Len(t, status(hop).Epochs, 1, "epochs that never began")
	}
	code, text, log := run(t, "status", "--admin", "http://"+c.Config(t, 0).Admin)
	require.Zero(t, code, log)
	require.Contains(t, text, "task "+one.Open.ID.String()[:8]+": withdrawn by its owner; all keys are erased\n")
	require.Contains(t, text, ": 0 tasks and 0 waiting key lists, limit 1, 1 withdrawn\n")
	require.NotContains(t, text, "refuses")

	again := func() {
		t.Helper()
		err := c.Begin(t.Context(), t, 0, bundle)
		requireProblem(t, problem.Malformed, err)
		require.ErrorContains(t, err, "has not withdrawn")
	}
	again()
	for _, stop := range stops {
		stop()
	}
	c.StartAll(t)
	again()
	requireWithdrawn(t, one)
	require.Zero(t, keysLeft(t, one, 0))
	two := begin(t, c, c.Named("two")) // in the only slot
	fillEpoch(t, two, 0)
	_, err := c.Ask(t, 0, c.Named("three"))
	requireProblem(t, problem.OwnerTaskLimit, err)

	c.Clock.Advance(4 * time.Hour) // long before the task's planned end and retention
	for hop := range 2 {
		requireSoon(t, func() bool { return !isServed(t, "http://"+c.Config(t, hop).Listen, one.Open.ID) })
	}
	again()
	require.NoError(t, withdraw(t, one, 0))
	stranger := one.OfOwner(t)
	requireProblem(t, problem.Unauthorized, withdraw(t, stranger, 0))
}

// TestWithdrawalIsRefused: only the owner of a task, or the key that signs its stream now, may withdraw it, at the
// relay for which it signed. The whole stream is withdrawn, and the set of a table.
func TestWithdrawalIsRefused(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 5))
	c.StartAll(t)
	one := begin(t, c, c.Named("one"))
	requireProblem(t, problem.Unauthorized, withdraw(t, one.OfOwner(t), 0))
	key, owner := c.AsOwner(t)
	elsewhere := one.Open.Relays[0]
	elsewhere.SignKey = one.Open.Relays[1].SignKey
	requireProblem(t, problem.Unauthorized, owner.Withdraw(t.Context(), elsewhere, one.Open.ID))
	requireProblem(t, problem.UnknownTask, owner.Withdraw(t.Context(), one.Open.Relays[0], task.ID{1}))

	set, handed := c.SignSet(t, setOf(3, epochsOf(0, 1, 2), epochsOf(0, 1, 2)))
	for hop := range 2 {
		require.NoError(t, c.BeginSet(t.Context(), t, hop, handed))
	}
	err := withdraw(t, set.Table(t, 1), 0)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "withdraw the set")

	stream := begin(t, c, c.Named("stream", func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop"} }))
	line := streamLine{stream}
	c.Clock.Advance(relaytest.Epoch)
	later := line.renew(t)
	err = withdraw(t, later, 0)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "withdraw the first, "+stream.Open.ID.String())

	public, private := newKey(t)
	trust := stream.Open.Trust(task.SignKey{})
	served, err := owner.Stream(t.Context(), stream.Open, trust)
	require.NoError(t, err)
	said, err := taskfile.NewStatement(trust, served.Authority, served.Tasks[1], public, key)
	require.NoError(t, err)
	raw, err := codec.Marshal(said)
	require.NoError(t, err)
	require.NoError(t, owner.State(t.Context(), stream.Open, stream.Open.Task, 0, raw))
	requireProblem(t, problem.Unauthorized, withdraw(t, stream, 0))
	heir := handover.NewRequester(private, nil)
	require.NoError(t, heir.Withdraw(t.Context(), stream.Open.Relays[0], stream.Open.ID))
	requireWithdrawn(t, stream)
	requireWithdrawn(t, later)
	requireSoon(t, func() bool { return keysLeft(t, stream, 0) == 0 })
	_, err = heir.NextKeys(t.Context(), stream.Open, later.Open.Task, 0, 1)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "has not withdrawn")
	two := begin(t, c, c.Named("two", func(task *task.Task) { task.Epochs.Start = uint64(c.Clock.Now().Unix()) }))
	require.NoError(t, two.Post(t.Context(), 0, two.Seal(t, 0, 1), relaytest.Network(1)), "other tasks go on")

	configured := relaytest.New(t, relaytest.Options{Hops: 1})
	configured.Start(t, 0)
	err = withdraw(t, configured, 0)
	requireProblem(t, problem.Unauthorized, err)
	require.ErrorContains(t, err, "ask the operator")
}

// TestTwinsWithdraw: two processes share a store. One of them gets the withdrawal: the other must take no more reports,
// and the keys must go. A later start must not serve the task as one that the operator configured.
func TestTwinsWithdraw(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true}.Approving(t, 1))
	cfg := c.Config(t, 0)
	stop := c.Start(t, 0)
	beside := cfg
	beside.Listen, beside.Admin = relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	runBeside(t, c, beside)
	one := begin(t, c, c.Named("one"))
	requireSoon(t, func() bool { return isServed(t, "http://"+beside.Listen, one.Open.ID) })
	require.NoError(t, one.Post(t.Context(), 0, one.Seal(t, 0, 1), relaytest.Network(1)))
	require.NoError(t, withdraw(t, one, 0))
	requireWithdrawn(t, one)
	page := "http://" + beside.Listen + "/v1/tasks/" + one.Open.ID.String()
	requireSoon(t, func() bool {
		resp, err := http.Get(page)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode == http.StatusNotFound
	})
	requireSoon(t, func() bool { return keysLeft(t, one, 0) == 0 })
	stop()
	folder := filepath.Join(cfg.Owners[0].Folder, one.Open.ID.String())
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(folder)))
	require.NoError(t, os.Chmod(filepath.Join(copied, "hpke.keys"), 0o600))
	cfg.Tasks = []relay.TaskConfig{{File: filepath.Join(copied, "task.bundle"), Owner: c.Owner,
		HPKEKeys: filepath.Join(copied, "hpke.keys")}}
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, "has not withdrawn")
}

// TestWithdrawWithTokens: a relay that waits for an issuer's key refuses reports, which raises an alert. After the task
// was withdrawn there must be none.
func TestWithdrawWithTokens(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.WithTokens}.Approving(t, 1))
	c.Start(t, 0) // and no issuer
	next := c.Named("one")
	list, err := c.Ask(t, 0, next)
	require.NoError(t, err)
	next.Relays[0].KeyList = list.Hash()
	key, _ := c.AsOwner(t)
	bundle, err := taskfile.Sign(next, key, append([]*onion.SignedKeyList{list}, c.Open.Lists()[1:]...))
	require.NoError(t, err)
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	one := c.After(t, bundle)
	refuses := func() bool {
		_, text := get(t, c, 0, "/status")
		return strings.Contains(text, `"refusing":`)
	}
	requireSoon(t, refuses)
	require.NoError(t, withdraw(t, one, 0))
	require.False(t, refuses())
	requireSoon(t, func() bool { return keysLeft(t, one, 0) == 0 })
}
