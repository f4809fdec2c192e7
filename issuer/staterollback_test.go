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

// rollbackIssuer is an issuer with a quota of 1. A test can replace its files with older copies.
type rollbackIssuer struct {
	*relaytest.Cascade
	cfg issuer.Config
}

// fileContents maps a path to the file's content, or to nil if the file does not exist.
type fileContents map[string][]byte

func newRollbackIssuer(t testing.TB) *rollbackIssuer {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.WithTokens(draft)
		draft.Epochs.Count = 4
	}})
	return &rollbackIssuer{c, accounts(t, c, 1)}
}

// store returns the paths of the store's files.
func (a *rollbackIssuer) store() []string {
	db := strings.TrimPrefix(a.cfg.Store, "sqlite:")
	return []string{db, db + "-wal", db + "-shm"}
}

func (a *rollbackIssuer) keys() []string {
	return []string{a.cfg.Tasks[0].TokenKeys, a.cfg.Tasks[0].TokenKeys + ".mark"}
}

func (a *rollbackIssuer) all() []string { return append(a.store(), a.keys()...) }

func copyOf(t testing.TB, paths ...string) fileContents {
	t.Helper()
	out := fileContents{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		out[path] = raw
	}
	return out
}

// restore writes the recorded contents back to the files at paths, and removes those that did not exist.
func (f fileContents) restore(t testing.TB, paths ...string) {
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

// issue starts the issuer, asks for one token of an epoch for each account, and returns how many accounts got one. It
// returns an error if the issuer does not start.
func (a *rollbackIssuer) issue(t testing.TB, epoch uint64, names ...string) (issued int, err error) {
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

// mustIssue is issue, but fails the test if the issuer does not start.
func (a *rollbackIssuer) mustIssue(t testing.TB, epoch uint64, names ...string) int {
	t.Helper()
	n, err := a.issue(t, epoch, names...)
	require.NoError(t, err)
	return n
}

// requireEnded fails unless the issuer refuses tokens for epochs 0 and 1, and issues one for the next epoch.
func (a *rollbackIssuer) requireEnded(t *testing.T) {
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

// TestStateRollback replaces the store or the keys with copies from before the last token. The issuer must issue
// nothing until the operator has ended the affected epochs. After that, it must issue tokens for the other epochs.
func TestStateRollback(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, a *rollbackIssuer, unused, early fileContents)
		why    string
	}{
		"store deleted": {func(t *testing.T, a *rollbackIssuer, unused, _ fileContents) { unused.restore(t, a.store()...) },
			"the store has no counts of this task: it is new, or another store"},
		"store restored": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) { early.restore(t, a.store()...) },
			"the store is an older copy: it is at commit 2, but tokens were issued up to commit 5"},
		"keys restored": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) { early.restore(t, a.keys()...) },
			"the keys are at commit 2, their mark at 2 and the store at 5: one is an older copy"},
		"keys from before the first token": {func(t *testing.T, a *rollbackIssuer, unused, _ fileContents) {
			unused.restore(t, a.keys()...)
		}, "the mark beside the key file is missing"},
		"key file from before the first token": {func(t *testing.T, a *rollbackIssuer, unused, _ fileContents) {
			unused.restore(t, a.keys()[0])
		}, "the key file is an older copy, from before its first token"},
		"key file restored": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) { early.restore(t, a.keys()[0]) },
			"the keys are at commit 2, their mark at 5 and the store at 5: one is an older copy"},
		"store and mark restored": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) {
			early.restore(t, append(a.store(), a.keys()[1])...)
		}, "the store is an older copy: it is at commit 2, but tokens were issued up to commit 5"},
		"store and key file restored": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) {
			early.restore(t, append(a.store(), a.keys()[0])...)
		}, "the store is an older copy: it is at commit 2, but tokens were issued up to commit 5"},
		"mark deleted": {func(t *testing.T, a *rollbackIssuer, unused, _ fileContents) { unused.restore(t, a.keys()[1]) },
			"the mark beside the key file is missing"},
		"store deleted, keys restored": {func(t *testing.T, a *rollbackIssuer, unused, early fileContents) {
			unused.restore(t, a.store()...)
			early.restore(t, a.keys()...)
		}, "the store has no counts of this task"},
		"store restored, keys further": {func(t *testing.T, a *rollbackIssuer, _, early fileContents) {
			require.Equal(t, 3, a.mustIssue(t, 0, "x", "y", "z"))
			late := copyOf(t, a.keys()...)
			require.Equal(t, 2, a.mustIssue(t, 0, "v", "w"))
			early.restore(t, a.store()...)
			late.restore(t, a.keys()...)
		}, "the store is an older copy: it is at commit 2, but tokens were issued up to commit 8"},
		"new binding, keys of the previous one": {func(t *testing.T, a *rollbackIssuer, _, _ fileContents) {
			before := copyOf(t, a.keys()...)
			_, err := issuer.EndAllEpochs(a.cfg)
			require.NoError(t, err)
			before.restore(t, a.keys()...)
		}, "the keys belong to another store"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newRollbackIssuer(t)
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
			require.Empty(t, again, "end-epochs must end all affected epochs")
			a.requireEnded(t)
		})
	}
}

// TestStateRollbackTogether rolls store and keys back to the same moment. They are consistent, so nothing in them shows
// the rollback. The operator who restored them must run end-epochs --all, which must end the epochs.
func TestStateRollbackTogether(t *testing.T) {
	a := newRollbackIssuer(t)
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
	require.Equal(t, issuer.EndedTask{ID: a.Open.ID.String(), Name: "test 0", Ended: 2, Next: 2}, ended[0])
	a.requireEnded(t)
}

// TestEndEpochsWithWrongClock: while the clock is wrong, end-epochs must erase no keys of future epochs.
func TestEndEpochsWithWrongClock(t *testing.T) {
	a := newRollbackIssuer(t)
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

// TestStateRollbackAtRandom rolls some, but not all, of {store, key file, mark} back to random moments. Either the
// issuer must refuse to start, or nobody may get a second token.
func TestStateRollbackAtRandom(t *testing.T) {
	const moments = 12
	restores := 60
	if stattest.Long {
		restores = 1000
	}
	a := newRollbackIssuer(t)
	history := []fileContents{copyOf(t, a.all()...)}
	var names []string
	for i := range moments {
		names = append(names, fmt.Sprint("person ", i))
		require.Equal(t, 1, a.mustIssue(t, 0, names[i]))
		history = append(history, copyOf(t, a.all()...))
	}
	refused := 0
	for range restores {
		history[moments].restore(t, a.all()...)
		var part []string // at least one of {store, key file, mark}, but not all
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

// TestErasedKeysStayErased restores a key file from before an epoch's end, and leaves all other files as they are. The
// issuer must erase the epoch's key again.
func TestErasedKeysStayErased(t *testing.T) {
	a := newRollbackIssuer(t)
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
	a.Clock.Advance(-relaytest.Epoch - 6*time.Minute) // in addition, somebody sets the clock back
	i, err = issuer.New(a.cfg)
	require.NoError(t, err)
	require.NoError(t, i.Close())
	require.Equal(t, []uint64{1, 2, 3}, left())
	require.Contains(t, log.String(), "an older copy of the key file was restored")
}

// TestMarkFails: if the issuer cannot write to its mark, it must issue no token. The same request must succeed later,
// also after a crash in between.
func TestMarkFails(t *testing.T) {
	a := newRollbackIssuer(t)
	i, err := issuer.New(a.cfg)
	require.NoError(t, err)
	server := httptest.NewServer(i.Handler())
	repair := issuer.BreakMarks(i)
	body := request(t, a.Cascade, 0)
	for range 3 { // the first attempt stores the count, but cannot write the mark
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
	i.Close() // returns an error, because the test has closed the marks

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

// TestStateRollbackWhileServing replaces the store of a running issuer with an older copy. The issuer must notice it,
// also after a failed write to its marks, when the store may be one commit ahead. It must not lower its marks to the
// store's commits.
func TestStateRollbackWhileServing(t *testing.T) {
	for _, fails := range []bool{false, true} {
		a := newRollbackIssuer(t)
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

// TestGroups: concurrent requests must share commits, so that there are fewer commits than requests.
func TestGroups(t *testing.T) {
	const requests = 64
	a := newRollbackIssuer(t)
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

// TestTwoStoresOneKey: two issuers with copies of one store and with the same keys must not both run.
func TestTwoStoresOneKey(t *testing.T) {
	a := newRollbackIssuer(t)
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
