package issuer_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// aged is an issuer with a quota of 1, whose files can be rolled back.
type aged struct {
	*relaytest.Cascade
	cfg issuer.Config
}

// files is the content of files, by path; nil for a file that does not exist.
type files map[string][]byte

func newAged(t testing.TB) *aged {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Epochs.Count = 4
	}})
	return &aged{c, accounts(t, c, 1)}
}

// store returns the files of the store, keys those of the keys.
func (a *aged) store() []string {
	db := strings.TrimPrefix(a.cfg.Store, "sqlite:")
	return []string{db, db + "-wal", db + "-shm"}
}

func (a *aged) keys() []string {
	return []string{a.cfg.Tasks[0].TokenKeys, a.cfg.Tasks[0].TokenKeys + ".mark"}
}

func (a *aged) all() []string { return append(a.store(), a.keys()...) }

// copyOf returns the current content of files.
func copyOf(t testing.TB, paths ...string) files {
	t.Helper()
	out := files{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		out[path] = raw
	}
	return out
}

// restore restores the content of some files.
func (f files) restore(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		raw, known := f[path]
		require.True(t, known)
		if raw == nil {
			os.Remove(path)
		} else {
			require.NoError(t, os.WriteFile(path, raw, 0o600))
		}
	}
}

// issue starts the issuer and asks for a token of an epoch for each account. It returns how many got one.
func (a *aged) issue(t testing.TB, epoch uint64, names ...string) (issued int, err error) {
	t.Helper()
	i, err := issuer.New(a.cfg)
	if err != nil {
		return 0, err
	}
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	for _, name := range names {
		_, err := ask(t, server.URL, a.Cascade, epoch, request(t, a.Cascade, epoch), account(name))
		if err == nil {
			issued++
		} else {
			require.ErrorIs(t, err, problem.New(problem.Limit, ""))
		}
	}
	return issued, nil
}

// mustIssue is issue for an issuer that must start.
func (a *aged) mustIssue(t testing.TB, epoch uint64, names ...string) int {
	t.Helper()
	n, err := a.issue(t, epoch, names...)
	require.NoError(t, err)
	return n
}

// requireEnded asserts that epochs 0 and 1 issue no further token, and that the next epoch does.
func (a *aged) requireEnded(t *testing.T) {
	t.Helper()
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	for epoch := range uint64(2) {
		_, err = ask(t, server.URL, a.Cascade, epoch, request(t, a.Cascade, epoch), account("new"))
		require.ErrorIs(t, err, problem.New(problem.EpochClosed, ""))
	}
	a.Clock.Advance(relaytest.Epoch)
	_, err = ask(t, server.URL, a.Cascade, 2, request(t, a.Cascade, 2), account("ann"))
	require.NoError(t, err)
	_, err = ask(t, server.URL, a.Cascade, 2, request(t, a.Cascade, 2), account("ann"))
	require.ErrorIs(t, err, problem.New(problem.Limit, ""))
}

// TestStateRollback: if the store or the keys are not those of the last token, nothing is issued until the operator has ended
// the affected epochs. Then the others continue.
func TestStateRollback(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, a *aged, unused, early files)
		why    string
	}{
		"store deleted": {func(t *testing.T, a *aged, unused, _ files) { unused.restore(t, a.store()...) },
			"the store has none of its counts: it was lost, or is another one"},
		"store restored": {func(t *testing.T, a *aged, _, early files) { early.restore(t, a.store()...) },
			"the store is at commit 2, and tokens were given out up to commit 5: it was restored"},
		"keys restored": {func(t *testing.T, a *aged, _, early files) { early.restore(t, a.keys()...) },
			"its keys are at commit 2, their mark at 2, and the store at 5: one was restored"},
		"keys from before the first token": {func(t *testing.T, a *aged, unused, _ files) { unused.restore(t, a.keys()...) },
			"the mark beside its keys is gone"},
		"key file from before the first token": {func(t *testing.T, a *aged, unused, _ files) {
			unused.restore(t, a.keys()[0])
		}, "its key file is from before its first token"},
		"key file restored": {func(t *testing.T, a *aged, _, early files) { early.restore(t, a.keys()[0]) },
			"its keys are at commit 2, their mark at 5, and the store at 5: one was restored"},
		"store and mark restored": {func(t *testing.T, a *aged, _, early files) {
			early.restore(t, append(a.store(), a.keys()[1])...)
		}, "the store is at commit 2, and tokens were given out up to commit 5: it was restored"},
		"store and key file restored": {func(t *testing.T, a *aged, _, early files) {
			early.restore(t, append(a.store(), a.keys()[0])...)
		}, "the store is at commit 2, and tokens were given out up to commit 5: it was restored"},
		"mark deleted": {func(t *testing.T, a *aged, unused, _ files) { unused.restore(t, a.keys()[1]) },
			"the mark beside its keys is gone"},
		"store deleted, keys restored": {func(t *testing.T, a *aged, unused, early files) {
			unused.restore(t, a.store()...)
			early.restore(t, a.keys()...)
		}, "the store has none of its counts"},
		"store restored, keys further": {func(t *testing.T, a *aged, _, early files) {
			require.Equal(t, 3, a.mustIssue(t, 0, "x", "y", "z"))
			late := copyOf(t, a.keys()...)
			require.Equal(t, 2, a.mustIssue(t, 0, "v", "w"))
			early.restore(t, a.store()...)
			late.restore(t, a.keys()...)
		}, "the store is at commit 2, and tokens were given out up to commit 8"},
		"begun anew with the keys of before": {func(t *testing.T, a *aged, _, _ files) {
			before := copyOf(t, a.keys()...)
			_, err := issuer.EndAllEpochs(a.cfg)
			require.NoError(t, err)
			before.restore(t, a.keys()...)
		}, "its keys have been used with another store"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAged(t)
			unused := copyOf(t, a.all()...)
			require.Equal(t, 2, a.mustIssue(t, 0, "ann", "bob"))
			early := copyOf(t, a.all()...)
			require.Equal(t, 2, a.mustIssue(t, 0, "cid", "dan"))
			require.Equal(t, 1, a.mustIssue(t, 1, "ann"), "ahead")
			c.change(t, a, unused, early)
			_, err := a.issue(t, 0, "ann")
			require.ErrorIs(t, err, issuer.ErrStateRollback)
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "issuer end-epochs")
			if _, err := os.Stat(a.store()[0]); err == nil {
				_, err = issuer.Inspect(a.cfg)
				require.ErrorIs(t, err, issuer.ErrStateRollback)
			}
			ended, err := issuer.EndEpochs(a.cfg)
			require.NoError(t, err)
			require.Len(t, ended, 1)
			require.Contains(t, ended[0].Why, c.why)
			require.EqualValues(t, 2, ended[0].Next)
			again, err := issuer.EndEpochs(a.cfg)
			require.NoError(t, err)
			require.Empty(t, again, "nothing is left to end")
			a.requireEnded(t)
		})
	}
}

// TestStateRollbackTogether: store and keys rolled back to the same moment are consistent, so nothing in them shows the
// rollback. The operator, who has restored them, must act.
func TestStateRollbackTogether(t *testing.T) {
	a := newAged(t)
	require.Equal(t, 1, a.mustIssue(t, 0, "ann"))
	early := copyOf(t, a.all()...)
	require.Equal(t, 1, a.mustIssue(t, 0, "bob"))
	early.restore(t, a.all()...)
	require.Zero(t, a.mustIssue(t, 0, "ann"))
	ended, err := issuer.EndEpochs(a.cfg)
	require.NoError(t, err)
	require.Empty(t, ended)
	ended, err = issuer.EndAllEpochs(a.cfg)
	require.NoError(t, err)
	require.Len(t, ended, 1)
	require.Equal(t, issuer.Ended{ID: a.Open.ID.String(), Name: "test 0", Ended: 2, Next: 2}, ended[0])
	a.requireEnded(t)
}

// TestEndEpochsByAWrongClock: a wrong clock does not erase keys of future epochs.
func TestEndEpochsByAWrongClock(t *testing.T) {
	a := newAged(t)
	require.Equal(t, 1, a.mustIssue(t, 0, "ann"))
	a.Clock.Advance(10 * 365 * 24 * time.Hour)
	_, err := issuer.EndAllEpochs(a.cfg)
	require.ErrorContains(t, err, "couldn't tell which epochs have begun: ")
	a.Clock.Advance(-10 * 365 * 24 * time.Hour)
	require.Zero(t, a.mustIssue(t, 0, "ann"))
	ended, err := issuer.EndAllEpochs(a.cfg)
	require.NoError(t, err)
	require.EqualValues(t, 2, ended[0].Next)
}

// TestStateRollbackAtRandom rolls any proper part of {store, key file, mark} of an issuer back to random moments. The issuer
// refuses, or nobody gets a second token.
func TestStateRollbackAtRandom(t *testing.T) {
	const moments = 12
	restores := 60
	if stattest.Long {
		restores = 1000
	}
	a := newAged(t)
	history := []files{copyOf(t, a.all()...)}
	var names []string
	for i := range moments {
		names = append(names, fmt.Sprint("person ", i))
		require.Equal(t, 1, a.mustIssue(t, 0, names[i]))
		history = append(history, copyOf(t, a.all()...))
	}
	refused := 0
	for range restores {
		history[moments].restore(t, a.all()...)
		var part []string // any but none and all of {store, key file, mark}
		which := 1 + rand.IntN(6)
		for i, files := range [][]string{a.store(), a.keys()[:1], a.keys()[1:]} {
			if which>>i&1 == 1 {
				part = append(part, files...)
			}
		}
		at := rand.IntN(moments)
		history[at].restore(t, part...)
		issued, err := a.issue(t, 0, names...)
		if err != nil {
			require.ErrorIs(t, err, issuer.ErrStateRollback)
			refused++
		}
		require.Zero(t, issued, "%v rolled back to moment %d of %d", part, at, moments)
	}
	require.Greater(t, refused, restores/2)
	t.Logf("%d of %d restores refused, no second token in any", refused, restores)
}

// TestErasedKeysStayErased: a key file from before an epoch's end, with everything else current, brings no key back.
func TestErasedKeysStayErased(t *testing.T) {
	a := newAged(t)
	var log bytes.Buffer
	a.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	require.Equal(t, 1, a.mustIssue(t, 0, "ann"))
	before := copyOf(t, a.keys()...)
	a.Clock.Advance(relaytest.Epoch + 6*time.Minute)
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	left := func() []uint64 {
		keys, err := keyfile.LoadRSA(a.keys()[0])
		require.NoError(t, err)
		return keys.Epochs()
	}
	require.Eventually(t, func() bool { return len(left()) == 3 }, relaytest.Patience, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	before.restore(t, a.keys()[0])
	require.Len(t, left(), 4)
	a.Clock.Advance(-relaytest.Epoch - 6*time.Minute) // someone also sets the clock back
	i, err = issuer.New(a.cfg)
	require.NoError(t, err)
	require.NoError(t, i.Close())
	require.Equal(t, []uint64{1, 2, 3}, left())
	require.Contains(t, log.String(), "an older copy of the key file was restored")
}

// TestMarkFails: a token whose count is not in the mark is not issued. The same request succeeds later, also after a
// crash in between.
func TestMarkFails(t *testing.T) {
	a := newAged(t)
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	server := httptest.NewServer(i.Handler())
	repair := issuer.BreakMarks(i)
	body := request(t, a.Cascade, 0)
	for range 3 { // it is in the store after the first attempt
		_, err = ask(t, server.URL, a.Cascade, 0, body, account("ann"))
		require.ErrorIs(t, err, problem.New(problem.Overloaded, ""))
	}
	require.NoError(t, repair())
	first, err := ask(t, server.URL, a.Cascade, 0, body, account("ann"))
	require.NoError(t, err)
	issuer.BreakMarks(i)
	lost := request(t, a.Cascade, 0)
	_, err = ask(t, server.URL, a.Cascade, 0, lost, account("bob"))
	require.ErrorIs(t, err, problem.New(problem.Overloaded, ""))
	server.Close()
	i.Close() // complains of marks that are closed already

	i, err = issuer.New(a.cfg)
	require.NoError(t, err)
	defer i.Close()
	server = httptest.NewServer(i.Handler())
	defer server.Close()
	_, err = ask(t, server.URL, a.Cascade, 0, lost, account("bob"))
	require.NoError(t, err)
	again, err := ask(t, server.URL, a.Cascade, 0, body, account("ann"))
	require.NoError(t, err)
	require.Equal(t, first, again)
}

// TestStateRollbackWhileServing: a running issuer notices that its store was rolled back, also after a failure of its marks,
// when the store may be ahead of them. It does not lower its marks to the store.
func TestStateRollbackWhileServing(t *testing.T) {
	for _, fails := range []bool{false, true} {
		a := newAged(t)
		require.Equal(t, 2, a.mustIssue(t, 0, "ann", "bob"))
		i, err := issuer.New(a.cfg)
		require.NoError(t, err)
		server := httptest.NewServer(i.Handler())
		ask := func(name string) error {
			_, err := ask(t, server.URL, a.Cascade, 0, request(t, a.Cascade, 0), account(name))
			return err
		}
		repair := func() error { return nil }
		if fails {
			repair = issuer.BreakMarks(i)
			require.ErrorIs(t, ask("cid"), problem.New(problem.Overloaded, ""))
		}
		db, err := sql.Open("sqlite", a.store()[0])
		require.NoError(t, err)
		_, err = db.Exec(`DELETE FROM issued; UPDATE store_binding SET commits = 1`)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		require.NoError(t, repair())
		for range 2 {
			require.ErrorIs(t, ask("ann"), problem.New(problem.Overloaded, ""), "fails %v", fails)
		}
		server.Close()
		require.NoError(t, i.Close())
		_, err = issuer.New(a.cfg)
		require.ErrorIs(t, err, issuer.ErrStateRollback)
	}
}

// TestGroups: concurrent requests share commits.
func TestGroups(t *testing.T) {
	const requests = 64
	a := newAged(t)
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	defer i.Close()
	server := httptest.NewServer(i.Handler())
	defer server.Close()
	bodies := make([][]byte, requests)
	for k := range bodies {
		bodies[k] = request(t, a.Cascade, 0)
	}
	var asking sync.WaitGroup
	for k, body := range bodies {
		asking.Go(func() {
			_, err := ask(t, server.URL, a.Cascade, 0, body, account(fmt.Sprint("person ", k)))
			if err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	t.Logf("%d requests in %d groups", requests, issuer.Groups(i))
	require.Less(t, issuer.Groups(i), uint64(requests))
}

// TestTwoStoresOneKey: two issuers with copies of one store and the same keys cannot both run.
func TestTwoStoresOneKey(t *testing.T) {
	a := newAged(t)
	require.Equal(t, 1, a.mustIssue(t, 0, "ann"))
	raw, err := os.ReadFile(a.store()[0])
	require.NoError(t, err)
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	defer i.Close()
	twin := a.cfg
	twin.Store = "sqlite:" + filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(strings.TrimPrefix(twin.Store, "sqlite:"), raw, 0o600))
	_, err = issuer.New(twin)
	require.ErrorContains(t, err, "another process uses it")
}
