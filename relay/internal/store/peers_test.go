package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// pair returns two processes with one database. Each has its own copies of key files, made before either process ran.
func pair(t *testing.T, description string) (a, b *history) {
	t.Helper()
	both := several(t, description, 2)
	return both[0], both[1]
}

// acquainted returns a pair in which both processes know of each other and of a batch that the first has made.
func acquainted(t *testing.T, description string) (a, b *history) {
	t.Helper()
	a, b = pair(t, description)
	a.make(t)
	a.follow(t)
	b.follow(t)
	return a, b
}

func several(t *testing.T, description string, n int) []*history {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	_, err := OpenOrCreateVault(secret)
	require.NoError(t, err)
	in, err := os.ReadFile(secret)
	require.NoError(t, err)
	all := make([]*history, n)
	for i := range all {
		h := &history{description: description, folder: t.TempDir(), released: map[string][]byte{},
			first: EpochID{task.ID{1}, 3}, mixed: EpochID{task.ID{1}, 4}}
		require.NoError(t, os.WriteFile(h.path(partSecret), in, 0o600))
		require.NoError(t, os.WriteFile(h.path(partKeys), []byte("{}\n"), 0o600))
		require.NoError(t, h.begin(t))
		all[i] = h
		t.Cleanup(func() { h.store.Close() })
	}
	return all
}

// make makes the next batch of the epoch mixed, as a later relay does.
func (h *history) make(t *testing.T) (seq uint64) {
	t.Helper()
	seq = progressOf(t, h.store, h.mixed).Next
	require.NoError(t, mixOf(h.store, h.mixed.Batch(seq), nil, func([]bool) (*onion.Batch, error) {
		return testBatch(seq, []byte(h.folder))
	}))
	return seq
}

func (h *history) follow(t *testing.T) {
	t.Helper()
	_, err := h.store.Reconcile(t.Context())
	require.NoError(t, err)
}

func (h *history) name(t *testing.T) string {
	t.Helper()
	name, err := h.vault.file.Mark().Name()
	require.NoError(t, err)
	return name
}

// misses simulates that a process has scanned the store for fenceAfter, while another one was silent, and may fence it.
func (h *history) misses(t *testing.T, other *history) {
	t.Helper()
	h.store.membership.mu.Lock()
	defer h.store.membership.mu.Unlock()
	s, known := h.store.silent[other.name(t)]
	require.True(t, known)
	h.store.silent[other.name(t)] = silence{s.scan, fenceAfter}
}

// TestStateRollbackPair: before both processes have cut a batch (recorded it in their rollback marks), no byte of it
// may leave. Then the process that made the batch is killed, and the database is rolled back to before the batch. The
// other process, which never saw the batch, must stop.
func TestStateRollbackPair(t *testing.T) {
	url := postgresURL(t)
	a, b := acquainted(t, url)
	a.follow(t)
	lagging := snapshot(t, url, 0)
	seq := a.make(t)
	_, err := a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.ErrorIs(t, err, ErrUncut)
	b.follow(t)
	_, err = a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err)
	require.NoError(t, a.store.Close()) // the process is killed
	lagging(t)
	_, err = b.store.Reconcile(t.Context())
	b.requireStopped(t, partStore, err)
	require.NoError(t, b.store.Close())
	b.requireStopped(t, partStore, b.begin(t))
}

// TestStateRollbackFenced: a process that does not answer must be fenced, so that the others can continue. When it
// returns, it must hand out nothing until it has caught up beside a process that was never fenced.
func TestStateRollbackFenced(t *testing.T) {
	url := postgresURL(t)
	a, b := acquainted(t, url)
	require.NoError(t, b.store.Close())
	seq := a.make(t)
	a.follow(t)
	_, err := a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.ErrorIs(t, err, ErrUncut)
	a.misses(t, b)
	_, err = a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err)
	require.NoError(t, b.begin(t))
	for range 2 {
		_, err = b.store.Batch(t.Context(), b.mixed.Batch(seq))
		require.ErrorIs(t, err, ErrUncut, "no other process is running")
	}
	a.follow(t)
	b.follow(t)
	_, err = b.store.Batch(t.Context(), b.mixed.Batch(seq))
	require.NoError(t, err)
	require.True(t, b.vault.guards()[0].Entry(b.mixed.key()).Made.Has(seq))
}

// TestStateRollbackWhileAway: a process is cut off, the others continue without it, and the database is then rolled
// back to before that. The process returns, considers itself a member, and makes a batch again. It must hand out
// nothing before the others have had time to report the rollback. After they have, it must hand out nothing until the
// operator has ended the epochs.
func TestStateRollbackWhileAway(t *testing.T) {
	url := postgresURL(t)
	a, b := pair(t, url)
	a.make(t)
	for range 3 {
		a.follow(t)
		b.follow(t)
	}
	lagging := snapshot(t, url, 0)
	a.follow(t)
	seq := a.make(t)
	a.misses(t, b)
	_, err := a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err)
	lagging(t)
	require.Equal(t, seq, b.make(t))
	_, err = b.store.Batch(t.Context(), b.mixed.Batch(seq))
	require.ErrorIs(t, err, ErrUncut, "a process that has not scanned for so long must not fence another")
	_, err = a.store.Reconcile(t.Context())
	a.requireStopped(t, partStore, err)
	b.misses(t, a)
	requireOther := func(err error) {
		t.Helper()
		back := new(StateRollbackError)
		require.ErrorAs(t, err, &back)
		require.Equal(t, otherFound, back.Cause)
	}
	_, err = b.store.Batch(t.Context(), b.mixed.Batch(seq))
	requireOther(err)
	require.NoError(t, b.store.Close())
	requireOther(b.begin(t))
	require.NoError(t, b.store.EndAll(t.Context(), []EpochID{b.mixed}, nil, "ended"))
	require.NoError(t, b.vault.End([]EpochID{b.mixed}))
	b.follow(t)
	require.Empty(t, b.store.Joining())
	require.NoError(t, a.store.Close())
	require.NoError(t, a.begin(t))
	require.Equal(t, CatchesUp, a.store.Joining())
	for range 2 {
		b.follow(t)
		a.follow(t)
	}
	require.Empty(t, a.store.Joining())
}

// TestSharedFiles: processes may share both the secret file and the HPKE key file. A process that shares only one of
// them, and has a copy of the other, must stop and give the reason. The first process must continue.
func TestSharedFiles(t *testing.T) {
	for _, part := range []int{partSecret, partKeys} {
		all := several(t, postgresURL(t), 2)
		a, b := all[0], all[1]
		require.NoError(t, b.store.Close())
		require.NoError(t, os.Remove(b.path(part)))
		require.NoError(t, os.Symlink(a.path(part), b.path(part)))
		require.NoError(t, b.begin(t))
		a.make(t)
		b.make(t)
		a.follow(t)
		_, err := b.store.Reconcile(t.Context())
		back := new(StateRollbackError)
		require.ErrorAs(t, err, &back)
		want := map[int]Cause{partSecret: keysOlderThanStore, partKeys: secretOlderThanStore}[part]
		require.Equal(t, want, back.Cause)
		require.Contains(t, back.Detail, "processes share both of these files, or neither")
		for range 2 {
			a.follow(t)
		}
		for _, file := range []int{partSecret, partKeys} {
			os.Remove(b.path(file))
			require.NoError(t, os.Symlink(a.path(file), b.path(file)))
		}
		require.NoError(t, b.store.Close())
		require.NoError(t, b.begin(t))
		a.follow(t)
	}
}

// TestStateRollbackUnrecorded: a process finds a rollback but cannot record it in the database. It must do so at its
// next scan.
func TestStateRollbackUnrecorded(t *testing.T) {
	url := postgresURL(t)
	a, b := acquainted(t, url)
	lagging := snapshot(t, url, 0)
	a.make(t)
	lagging(t)
	db := raw(t, url)
	_, err := db.Exec(`ALTER TABLE processes RENAME TO away`)
	require.NoError(t, err)
	_, err = a.store.Reconcile(t.Context())
	require.Error(t, err)
	a.store.stop(t.Context(), &StateRollbackError{storeOlderThanSecret, ""})
	_, err = db.Exec(`ALTER TABLE away RENAME TO processes`)
	require.NoError(t, err)
	b.follow(t)
	_, err = a.store.Reconcile(t.Context())
	require.ErrorAs(t, err, new(*StateRollbackError))
	_, err = b.store.Reconcile(t.Context())
	require.ErrorAs(t, err, new(*StateRollbackError))
	require.Equal(t, otherFound, b.store.StateRollback().Cause)
}

// TestStateRollbackScans: if the database has lost only a scan number, a process must notice that it was rolled back.
func TestStateRollbackScans(t *testing.T) {
	url := postgresURL(t)
	_, b := acquainted(t, url)
	lagging := snapshot(t, url, 0)
	b.follow(t)
	lagging(t)
	_, err := b.store.Batch(t.Context(), b.mixed.Batch(0))
	b.requireStopped(t, partStore, err)
}

// TestSilence: if a process was cut off from the database together with another one, it must not count the other as
// silent for that time.
func TestSilence(t *testing.T) {
	d, now, other := newStore(&database{}), time.Now(), peer{file: "other", scan: 7}
	d.listen(peer{}, []peer{other}, now)
	d.listen(peer{}, []peer{other}, now.Add(time.Hour))
	require.False(t, d.isSilent(other))
	for i := range 4 {
		d.listen(peer{}, []peer{other}, now.Add(time.Hour+time.Duration(i+1)*longestGap))
	}
	require.True(t, d.isSilent(other))
	require.False(t, d.isSilent(peer{file: "other", scan: 8}), "a process that has just made a scan is not silent")
	require.False(t, d.isSilent(peer{file: "new"}))
}

// TestStand covers every line of the table of [stand].
func TestStand(t *testing.T) {
	at := func(s standing, begun uint64) []peer { return []peer{{standing: s, begun: begun}} }
	type result struct {
		standing standing
		caught   uint64
	}
	for _, c := range []struct {
		mine   standing
		others []peer
		caught uint64
		want   result
	}{
		{unknown, nil, 0, result{member, 0}},
		{unknown, at(fenced, 1), 0, result{joining, 0}},
		{unknown, at(member, 9), 0, result{joining, 0}},
		{member, at(member, 9), 5, result{member, 0}},
		{fenced, at(member, 9), 5, result{joining, 0}},
		{joining, at(member, 9), 0, result{joining, 10}},
		{joining, at(member, 5), 5, result{member, 0}},
		{joining, at(member, 4), 5, result{joining, 5}},
		{joining, at(joining, 9), 5, result{joining, 5}},
		{joining, at(fenced, 9), 5, result{joining, 5}},
	} {
		is, caught := stand(c.mine, c.others, 10, c.caught)
		require.Equal(t, c.want, result{is, caught}, "%+v", c)
	}
}

// TestNoMember: all members are gone. A fenced process that returns, and a new one, must report that and hand out
// nothing, even side by side. The operator's command must let the process on which it runs continue, and the other join
// it.
func TestNoMember(t *testing.T) {
	all := several(t, postgresURL(t), 3)
	a, b, c := all[0], all[1], all[2]
	a.make(t)
	a.follow(t)
	b.follow(t)
	seq := a.make(t)
	a.follow(t)
	a.misses(t, b)
	_, err := a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err)
	require.NoError(t, a.store.Close()) // its disk is lost, too
	c.follow(t)
	require.NoError(t, b.store.Close())
	require.NoError(t, b.begin(t))
	for range 5 {
		b.follow(t)
		c.follow(t)
	}
	for _, h := range []*history{b, c} {
		require.Equal(t, CatchesUp, h.store.Joining())
		h.misses(t, a)
		h.follow(t)
		require.Equal(t, NoMember, h.store.Joining())
		_, err = h.store.Batch(t.Context(), h.mixed.Batch(seq))
		require.ErrorIs(t, err, ErrUncut)
	}
	require.NoError(t, b.store.EndAll(t.Context(), []EpochID{b.mixed}, nil, "ended"))
	require.NoError(t, b.vault.End([]EpochID{b.mixed}))
	b.follow(t)
	require.Empty(t, b.store.Joining())
	for range 3 {
		c.follow(t)
		b.follow(t)
	}
	require.Empty(t, c.store.Joining())
	b.mixed.Epoch++
	c.mixed.Epoch++
	require.Zero(t, progressOf(t, b.store, b.mixed).Next)
	b.make(t)
	c.follow(t)
	_, err = b.store.Batch(t.Context(), b.mixed.Batch(0))
	require.NoError(t, err)
}

// TestJoins: Joins, which reads only the database, must return what the process itself would report. A new process
// beside others hands out nothing. Nor does one that knows that it was fenced although the database does not.
func TestJoins(t *testing.T) {
	a, b := pair(t, postgresURL(t))
	requireJoins := func(want Joining, of *history) {
		t.Helper()
		is, err := a.store.Joins(t.Context(), of.vault)
		require.NoError(t, err)
		require.Equal(t, want, is)
	}
	requireJoins("", b)
	a.make(t)
	a.follow(t)
	requireJoins("", a)
	requireJoins(CatchesUp, b)
	_, err := a.store.write.Exec(`UPDATE processes SET standing = $1`, int(fenced))
	require.NoError(t, err)
	requireJoins(NoMember, a)
	requireJoins(NoMember, b)
	_, err = a.store.write.Exec(`UPDATE processes SET standing = $1`, int(member))
	require.NoError(t, err)
	for range 3 {
		b.follow(t)
		a.follow(t)
	}
	requireJoins("", b)
	require.NoError(t, b.vault.file.Mark().Change(func(s *rollback.Mark) { s.Fenced = true }))
	requireJoins(CatchesUp, b)
}

// TestStateRollbackWhileJoining: while a process rejoins, others hand out batches that are not in its rollback marks.
// Then the database is rolled back to when that process was a member. The process must notice, because its mark records
// that it was fenced.
func TestStateRollbackWhileJoining(t *testing.T) {
	url := postgresURL(t)
	a, b := pair(t, url)
	a.make(t)
	a.follow(t)
	for range 3 {
		b.follow(t)
		a.follow(t)
	}
	_, err := b.store.Batch(t.Context(), b.mixed.Batch(0))
	require.NoError(t, err)
	lagging := snapshot(t, url, 0)
	a.misses(t, b)
	seq := a.make(t)
	progress := []Progress{progressOf(t, b.store, b.mixed)}
	_, err = a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err)
	seq = a.make(t)
	_, err = a.store.Batch(t.Context(), a.mixed.Batch(seq))
	require.NoError(t, err, "a must not wait for b, which is fenced")
	a.follow(t)
	require.NoError(t, b.store.announce(t.Context(), progress, 0))
	require.False(t, b.store.met.Load(), "b must not be a member before it has scanned")
	require.NoError(t, a.store.Close())
	require.NoError(t, b.store.Close())
	lagging(t)
	b.requireStopped(t, partStore, b.begin(t))
}

// TestStateRollbackMadeAgain: a process has cut a batch that another process made. If the database is rolled back to
// before that batch, the process must notice before it makes the batch again. It must also notice a rollback to before
// the operator ended an epoch.
func TestStateRollbackMadeAgain(t *testing.T) {
	url := postgresURL(t)
	a, b := acquainted(t, url)
	lagging := snapshot(t, url, 0)
	seq := a.make(t)
	b.follow(t)
	lagging(t)
	err := mixOf(b.store, b.mixed.Batch(seq), nil, func([]bool) (*onion.Batch, error) {
		return testBatch(seq, []byte(b.folder))
	})
	b.requireStopped(t, partStore, err)

	require.NoError(t, b.store.EndAll(t.Context(), []EpochID{b.mixed}, nil, "ended"))
	require.NoError(t, b.vault.End([]EpochID{b.mixed}))
	b.follow(t)
	lagging(t)
	late := b.submission()
	late.ID = b.mixed
	_, err = b.store.Commit(t.Context(), []*Submission{late})
	b.requireStopped(t, partStore, err)
}

// TestStateRollbackRace: two processes make a batch with one number concurrently. One must succeed, and both must hand
// out its bytes.
func TestStateRollbackRace(t *testing.T) {
	a, b := pair(t, postgresURL(t))
	made := make(chan error, 2)
	for _, h := range []*history{a, b} {
		go func() {
			made <- mixOf(h.store, h.mixed.Batch(0), nil, func([]bool) (*onion.Batch, error) {
				return testBatch(0, []byte(h.folder))
			})
		}()
	}
	one, other := <-made, <-made
	if one != nil {
		one, other = other, one
	}
	require.NoError(t, one)
	require.ErrorIs(t, other, ErrMade)
	for range 3 {
		a.follow(t)
		b.follow(t)
	}
	first, err := a.store.Batch(t.Context(), a.mixed.Batch(0))
	require.NoError(t, err)
	second, err := b.store.Batch(t.Context(), b.mixed.Batch(0))
	require.NoError(t, err)
	require.Equal(t, bytesOf(t, first), bytesOf(t, second))
}

// TestStateRollbackTimeline: if a database continues on another timeline, as a promoted replica does, all processes
// must stop, although nothing seems to be missing. After the operator has ended the epochs, they must continue.
func TestStateRollbackTimeline(t *testing.T) {
	pgtest.Need(t)
	server, err := pgtest.Start()
	require.NoError(t, err)
	defer server.Stop()
	url, err := server.Database()
	require.NoError(t, err)
	a, b := acquainted(t, url)
	require.NoError(t, server.Halt())
	require.NoError(t, server.Restart())
	soon := func(holds func(err error) bool) {
		t.Helper()
		require.Eventually(t, func() bool { // the restart has closed the connections
			_, err := a.store.Reconcile(t.Context())
			return holds(err)
		}, time.Minute, 20*time.Millisecond)
	}
	soon(func(err error) bool { return err == nil })
	var acl *string
	const rights = `SELECT proacl::text FROM pg_proc WHERE proname = 'pg_control_system'`
	require.NoError(t, a.store.read.QueryRow(rights).Scan(&acl))
	require.Nil(t, acl, "every database user must be able to read the server's identity")
	require.NoError(t, server.Halt())
	require.NoError(t, server.Promote())
	require.NoError(t, server.Restart())
	back := new(StateRollbackError)
	soon(func(err error) bool { return errors.As(err, &back) })
	require.Equal(t, otherDatabase, back.Cause)
	require.NoError(t, a.store.EndAll(t.Context(), []EpochID{a.mixed}, nil, "ended"))
	a.follow(t)
	require.NoError(t, b.store.Close())
	require.NoError(t, b.begin(t), "b must join the process that ended the epochs")
	s, err := rollback.OpenMark(b.path(partKeys))
	require.NoError(t, err)
	require.Regexp(t, `/00000002$`, s.Known().Database)
}

// TestRepeatedTransactions: PostgreSQL ends one of two transactions that wait for each other, or that it cannot put in
// an order. The store must run it again.
func TestRepeatedTransactions(t *testing.T) {
	all := several(t, postgresURL(t), 2)
	db := raw(t, all[0].description)
	for _, statement := range []string{
		`CREATE TABLE pair (id INTEGER, n INTEGER)`, `INSERT INTO pair VALUES (0, 0), (1, 0)`,
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	var runs atomic.Int64
	var both sync.WaitGroup
	both.Add(2)
	add := func(tx *transaction, id int) error {
		_, err := tx.exec(`UPDATE pair SET n = n + 1 WHERE id = $1`, id)
		return err
	}
	ended := make(chan error, 2)
	for i, h := range all {
		go func() {
			first := true
			ended <- h.store.within(t.Context(), func(tx *transaction) error {
				runs.Add(1)
				if err := add(tx, i); err != nil {
					return err
				}
				if first { // Now each has the row that the other one wants.
					first = false
					both.Done()
					both.Wait()
				}
				return add(tx, 1-i)
			})
		}()
	}
	for range all {
		require.NoError(t, <-ended)
	}
	require.GreaterOrEqual(t, runs.Load(), int64(3), "the deadlock ended one or both, which ran again")
	var sum int
	require.NoError(t, db.QueryRow(`SELECT sum(n) FROM pair`).Scan(&sum))
	require.Equal(t, 4, sum)
	runs.Store(0)
	require.NoError(t, all[0].store.within(t.Context(), func(tx *transaction) error {
		if runs.Add(1) == 1 {
			_, err := tx.exec(`DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
			return err
		}
		return nil
	}))
	require.EqualValues(t, 2, runs.Load())
}
