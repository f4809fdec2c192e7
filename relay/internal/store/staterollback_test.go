package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// The parts of a relay's data that the tests restore separately, as bits.
const (
	partStore = 1 << iota
	partSecret
	partKeys
	allParts = partStore | partSecret | partKeys
)

// moment is a copy of all parts at one time.
type moment struct {
	store   func(t *testing.T) // restores the store's content
	files   map[int][]byte     // by part
	entries map[rollback.EpochKey]rollback.Entry
}

// history is a simulated relay: copies of its data at many moments, and what it has given out.
type history struct {
	description, folder string
	first, mixed        EpochID // an epoch as at a first relay, and one as at a later relay
	moments             []moment
	released            map[string][]byte // bytes of batches handed out, by epoch and number
	taken               []*Submission     // acknowledged submissions
	open                []uint64
	vault               *Vault
	store               *Store
	copies              *sql.DB // connection for copies of a PostgreSQL store
	names               int
}

func (h *history) path(part int) string {
	return filepath.Join(h.folder, map[int]string{partSecret: "secret", partKeys: "keys"}[part])
}

// begin opens the store and key files as a starting relay does. It returns the error of Reconcile.
func (h *history) begin(t *testing.T) error {
	t.Helper()
	var err error
	h.vault, err = OpenOrCreateVault(h.path(partSecret))
	require.NoError(t, err)
	keys, err := rollback.OpenMark(h.path(partKeys))
	require.NoError(t, err)
	h.vault.Watch(h.first.Task, keys)
	s, err := Open(h.description, h.vault, Process{})
	require.NoError(t, err)
	h.store = s
	_, err = h.store.Reconcile(t.Context())
	return err
}

func (h *history) keep(t *testing.T) {
	t.Helper()
	m := moment{store: h.snapshot(t), files: map[int][]byte{}}
	for _, part := range []int{partSecret, partKeys} {
		in, err := os.ReadFile(h.path(part))
		require.NoError(t, err)
		m.files[part] = in
	}
	m.entries = h.vault.guards()[0].Known().Entries
	h.moments = append(h.moments, m)
}

// snapshot copies the content of the history's store, always over the same connection. restore restores it.
func (h *history) snapshot(t *testing.T) (restore func(t *testing.T)) {
	t.Helper()
	if isPostgres(h.description) && h.copies == nil {
		h.copies = raw(t, h.description)
	}
	return snapshotOver(t, h.copies, h.description, len(h.moments))
}

// snapshot copies a store's content and returns a function that restores it.
func snapshot(t *testing.T, description string, n int) (restore func(t *testing.T)) {
	t.Helper()
	return snapshotOver(t, raw(t, description), description, n)
}

func snapshotOver(t *testing.T, db *sql.DB, description string, n int) (restore func(t *testing.T)) {
	t.Helper()
	if path, ok := strings.CutPrefix(description, service.SchemeSQLite); ok {
		files := map[string][]byte{}
		for _, suffix := range []string{"", "-wal"} {
			in, err := os.ReadFile(path + suffix)
			require.NoError(t, err)
			files[suffix] = in
		}
		return func(t *testing.T) {
			os.Remove(path + "-shm")
			for suffix, in := range files {
				require.NoError(t, os.WriteFile(path+suffix, in, 0o600))
			}
		}
	}
	name := fmt.Sprintf("m%d", n)
	tables := []string{"meta", "epochs", "open", "runs", "seen", "clients", "batches", "findings", "tallies", "ends",
		"rollback_marks", "recorded_manifests", "processes",
		"cuts"}
	text := "CREATE SCHEMA " + name + ";"
	for _, table := range tables {
		text += fmt.Sprintf("CREATE UNLOGGED TABLE %s.%s AS TABLE public.%s;", name, table, table)
	}
	_, err := db.Exec(text)
	require.NoError(t, err)
	return func(t *testing.T) {
		text := ""
		for _, table := range tables {
			text += fmt.Sprintf("DELETE FROM public.%s; INSERT INTO public.%s OVERRIDING SYSTEM VALUE SELECT * "+
				"FROM %s.%s;",
				table, table, name, table)
		}
		_, err := db.Exec(text)
		require.NoError(t, err)
	}
}

// restore restores the last moment, except some parts, which it restores to moment m.
func (h *history) restore(t *testing.T, m, parts int) {
	t.Helper()
	from := func(part int) moment {
		if parts&part != 0 {
			return h.moments[m]
		}
		return h.moments[len(h.moments)-1]
	}
	from(partStore).store(t)
	for _, part := range []int{partSecret, partKeys} {
		require.NoError(t, os.WriteFile(h.path(part), from(part).files[part], 0o600))
	}
}

// submission returns a new client's submission.
func (h *history) submission() *Submission {
	h.names++
	s := aSubmission(h.names, h.names)
	s.ID, s.Size = h.first, 4
	return s
}

// act performs a random action of a relay, and hands out any batch that it makes.
func (h *history) act(t *testing.T) {
	t.Helper()
	switch n := rand.IntN(10); {
	case n < 5:
		h.commit(t)
	case n < 8 && len(h.open) > 0:
		h.seal(t)
	case n < 9:
		h.mix(t)
	default:
		h.confirm(t)
	}
}

func (h *history) commit(t *testing.T) {
	t.Helper()
	var group []*Submission
	for range 1 + rand.IntN(3) {
		group = append(group, h.submission())
	}
	for _, verdict := range verdicts(t, h.store, group...) {
		require.Equal(t, Accepted, verdict)
	}
	h.taken = append(h.taken, group...)
	h.open = nil
	for _, b := range progressOf(t, h.store, h.first).Open {
		if b.Submissions == 4 {
			h.open = append(h.open, b.Seq)
		}
	}
}

func (h *history) seal(t *testing.T) {
	t.Helper()
	seq := h.open[0]
	h.open = h.open[1:]
	require.NoError(t, h.store.Seal(t.Context(), h.first.Batch(seq), sealAs(h.first.Batch(seq))))
	h.serve(t, h.first.Batch(seq))
}

// sealAs returns a SealFunc that makes a batch of all rows, in their order.
func sealAs(b BatchID) SealFunc {
	return wholly(func(submissions uint64, rows []Row) (*onion.Batch, error) {
		lanes := make([][][]byte, 2)
		for _, row := range rows {
			lanes[row.Lane] = append(lanes[row.Lane], row.Slot)
		}
		return onion.NewBatch(testSign, onion.BatchDraft{
			Context: onion.Context{TaskID: b.Task, Epoch: b.Epoch},
			Seq:     b.Seq, Submissions: submissions, In: []uint64{uint64(len(lanes[0])), uint64(len(lanes[1]))},
		}, lanes)
	})
}

func (h *history) mix(t *testing.T) {
	t.Helper()
	seq := progressOf(t, h.store, h.mixed).Next
	require.NoError(t, mixOf(h.store, h.mixed.Batch(seq), []Short{number8(int(seq))},
		func(fresh []bool) (*onion.Batch, error) {
			require.True(t, fresh[0])
			return testBatch(seq, fmt.Appendf(nil, "%100d", seq))
		}))
	h.serve(t, h.mixed.Batch(seq))
}

func (h *history) confirm(t *testing.T) {
	t.Helper()
	for _, id := range []EpochID{h.first, h.mixed} {
		if held := progressOf(t, h.store, id).Held; len(held) > 0 {
			require.NoError(t, h.store.Confirm(t.Context(), id.Batch(held[0])))
			return
		}
	}
}

func (h *history) serve(t *testing.T, ref BatchID) {
	t.Helper()
	b, err := h.store.Batch(t.Context(), ref)
	require.NoError(t, err)
	h.released[fmt.Sprint(ref.Epoch, ref.Seq)] = bytesOf(t, b)
}

// live returns a history that has run for some moments.
func live(t *testing.T, description string, moments int) *history {
	t.Helper()
	h := &history{description: description, folder: t.TempDir(), released: map[string][]byte{},
		first: EpochID{task.ID{1}, 3}, mixed: EpochID{task.ID{1}, 4}}
	require.NoError(t, os.WriteFile(h.path(partKeys), []byte("{}\n"), 0o600))
	require.NoError(t, h.begin(t))
	h.commit(t)
	h.mix(t)
	h.keep(t)
	for len(h.moments) < moments {
		h.act(t)
		h.keep(t)
	}
	require.NoError(t, h.store.Close())
	return h
}

// steps returns the highest number of steps that any epoch has made since moment m.
func (h *history) steps(m int) (most uint64) {
	for key, e := range h.moments[len(h.moments)-1].entries {
		most = max(most, e.Steps-h.moments[m].entries[key].Steps)
	}
	return most
}

// requireStopped asserts that err is a state rollback of parts, and that all methods that change the store or hand out
// a batch now fail.
func (h *history) requireStopped(t *testing.T, parts int, err error) {
	t.Helper()
	back := new(StateRollbackError)
	require.ErrorAs(t, err, &back)
	want := []Cause{secretOlderThanStore, keysOlderThanStore}
	if parts&partStore != 0 {
		want = []Cause{storeOlderThanSecret, storeOlderThanKeys}
	}
	require.Contains(t, want, back.Cause)
	ctx := t.Context()
	_, err = h.store.Commit(ctx, []*Submission{h.submission()})
	require.ErrorAs(t, err, &back)
	for _, id := range []EpochID{h.first, h.mixed, {task.ID{1}, 9}} {
		for seq := range uint64(3) {
			require.ErrorAs(t, h.store.Seal(ctx, id.Batch(seq), sealAs(id.Batch(seq))), &back)
			require.ErrorAs(t, h.store.Mix(ctx, id.Batch(seq), nil, nil), &back)
			_, err = h.store.Batch(ctx, id.Batch(seq))
			require.ErrorAs(t, err, &back)
		}
	}
}

// requireSame asserts that a store continues unchanged: every batch number has the same bytes, no slot gets another
// number, and every client is known.
func (h *history) requireSame(t *testing.T) {
	t.Helper()
	for _, id := range []EpochID{h.first, h.mixed} {
		p := progressOf(t, h.store, id)
		for _, seq := range p.Held {
			b, err := h.store.Batch(t.Context(), id.Batch(seq))
			require.NoError(t, err)
			require.Equal(t, h.released[fmt.Sprint(id.Epoch, seq)], bytesOf(t, b))
		}
	}
	tags := []Short{}
	for seq := range progressOf(t, h.store, h.mixed).Next {
		tags = append(tags, number8(int(seq)))
	}
	late := errors.New("read only")
	err := mixOf(h.store, h.mixed.Batch(uint64(len(tags))), tags, func(fresh []bool) (*onion.Batch, error) {
		require.NotContains(t, fresh, true, "a slot must not come again under a later number")
		return nil, late
	})
	require.ErrorIs(t, err, late)
	some := h.taken[rand.IntN(len(h.taken))]
	again, other := *some, *some
	other.Tag, other.Receipt = number8(1<<40), number8(1<<40)
	require.Equal(t, []Verdict{Repeated, Limited}, verdicts(t, h.store, &again, &other))
}

// TestStateRollback restores every combination of store, secret and keys, except all three, to random earlier moments
// of a relay: 600 moments in the long form, else 8; on PostgreSQL, which is slower, a third of the combinations. Then
// either nothing may work any more and the cause must name what was rolled back. Or, if the restored state is one that
// a crash leaves, everything must be unchanged.
func TestStateRollback(t *testing.T) {
	moments := 8
	if stattest.Long {
		moments = 600
	}
	figures := map[string]map[string]int{}
	for engine, description := range map[string]string{
		"sqlite": service.SchemeSQLite + filepath.Join(t.TempDir(), "relay.db"), "postgres": "",
	} {
		t.Run(engine, func(t *testing.T) {
			if engine == "postgres" {
				description = postgresURL(t)
			}
			h := live(t, description, moments)
			stopped, same := 0, 0
			for m := range len(h.moments) {
				for parts := 1; parts < allParts; parts++ {
					if engine == "postgres" && moments > 100 && rand.IntN(3) > 0 {
						continue // run only a third of the combinations
					}
					h.restore(t, m, parts)
					err := h.begin(t)
					switch since := h.steps(m); {
					case since == 0, since == 1 && parts&partStore == 0:
						require.NoError(t, err, "moment %d, parts %b", m, parts)
						h.requireSame(t)
						same++
					default:
						h.requireStopped(t, parts, err)
						stopped++
					}
					require.NoError(t, h.store.Close())
				}
			}
			require.Greater(t, stopped, moments)
			figures[engine] = map[string]int{"moments": moments, "stopped": stopped, "went_on_as_after_a_crash": same}
		})
	}
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		out, err := json.Marshal(figures)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, out, 0o600))
	}
}

// unmark restores a key file to before its first use, when it had no mark, and returns its previous content.
func (h *history) unmark(t *testing.T, part int) []byte {
	t.Helper()
	in, err := os.ReadFile(h.path(part))
	require.NoError(t, err)
	document, _, err := rollback.SplitFile(in)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.path(part), document, 0o600))
	return in
}

// TestStateRollbackToNothing restores a key file to before its first use, as an operator does who has no later backup.
// The relay must detect this.
func TestStateRollbackToNothing(t *testing.T) {
	h := live(t, service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), 10)
	h.restore(t, 0, 0)
	require.NoError(t, os.WriteFile(h.path(partKeys), []byte("{}\n"), 0o600))
	err := h.begin(t)
	back := new(StateRollbackError)
	require.ErrorAs(t, err, &back)
	require.Equal(t, keysOlderThanStore, back.Cause)
	require.NoError(t, h.store.Close())

	h.restore(t, 0, 0)
	h.unmark(t, partSecret)
	require.ErrorAs(t, h.begin(t), &back)
	require.Equal(t, secretOlderThanStore, back.Cause)
	require.NoError(t, h.store.Close())
}

// TestStateRollbackToNothingPostgres: in a shared database, a secret or HPKE key file from before its first use looks
// like a new process's. Nevertheless the relay must detect this, because each of the two files records which other one
// it was used with.
func TestStateRollbackToNothingPostgres(t *testing.T) {
	h := live(t, postgresURL(t), 10)
	h.restore(t, 0, 0)
	require.NoError(t, h.begin(t))
	require.NoError(t, h.store.Close())
	back := new(StateRollbackError)
	for part, cause := range map[int]Cause{partKeys: keysOlderThanStore, partSecret: secretOlderThanStore} {
		in := h.unmark(t, part)
		require.ErrorAs(t, h.begin(t), &back)
		require.Equal(t, cause, back.Cause)
		require.NoError(t, h.store.Close())
		require.NoError(t, os.WriteFile(h.path(part), in, 0o600))
	}
	h.unmark(t, partSecret)
	require.ErrorAs(t, h.begin(t), &back)
	require.NoError(t, h.store.EndAll(t.Context(), []EpochID{h.first, h.mixed}, nil, "ended"))
	require.NoError(t, h.vault.End([]EpochID{h.first, h.mixed}))
	require.NoError(t, h.store.Close())
	require.NoError(t, h.begin(t))
	require.NoError(t, h.store.Close())
}

// TestFirstStepWhileFollowing: if a mark gets its name while the store is compared with it, that must not look like a
// rollback.
func TestFirstStepWhileFollowing(t *testing.T) {
	h := live(t, service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), 1)
	require.NoError(t, h.begin(t))
	defer h.store.Close()
	all, err := h.store.Progress(t.Context())
	require.NoError(t, err)
	rows, err := markTable{h.store.database}.all(t.Context())
	require.NoError(t, err)
	for _, g := range h.vault.guards() {
		seen := newSnapshot(all, rows)
		seen.alone = true
		require.NoError(t, seen.compareRows(g, &rollback.Mark{}))
	}
}

// TestStateRollbackWhileServing: a running relay must notice at its next step that its store was rolled back.
func TestStateRollbackWhileServing(t *testing.T) {
	h := live(t, postgresURL(t), 12)
	h.restore(t, 0, 0)
	require.NoError(t, h.begin(t))
	defer h.store.Close()
	h.moments[2].store(t)
	_, err := h.store.Commit(t.Context(), []*Submission{h.submission()})
	h.requireStopped(t, partStore, err)
}

// TestEndAfterStateRollback: after a rollback, the operator's command must end the affected epochs, and other epochs
// must work. If the store is later rolled back to before that command, the relay must notice that too.
func TestEndAfterStateRollback(t *testing.T) {
	for engine, description := range map[string]string{
		"sqlite": service.SchemeSQLite + filepath.Join(t.TempDir(), "relay.db"), "postgres": "",
	} {
		t.Run(engine, func(t *testing.T) {
			if engine == "postgres" {
				description = postgresURL(t)
			}
			h := live(t, description, 20)
			h.restore(t, 3, partStore)
			require.Error(t, h.begin(t))
			ids := []EpochID{h.first, h.mixed}
			require.NoError(t, h.vault.DestroyEpochs(ids))
			require.NoError(t, h.store.EndAll(t.Context(), ids, nil, "ended"))
			h.requireEnded(t)
			require.NoError(t, h.store.Close())
			require.NoError(t, h.begin(t), "the marks must accept the new store")
			require.NoError(t, h.vault.End(ids))
			h.requireEnded(t)
			next := aSubmission(1, 1)
			next.ID = EpochID{task.ID{1}, 8}
			require.Equal(t, []Verdict{Accepted}, verdicts(t, h.store, next))
			require.NoError(t, h.store.Close())
			h.moments[3].store(t)
			h.requireStopped(t, partStore, h.begin(t))
			require.NoError(t, h.store.Close())
		})
	}
}

// requireEnded asserts that nothing of the history's two epochs is left.
func (h *history) requireEnded(t *testing.T) {
	t.Helper()
	for _, id := range []EpochID{h.first, h.mixed} {
		p := progressOf(t, h.store, id)
		require.Equal(t, StateEnded, p.State)
		require.Empty(t, p.Open)
		require.Empty(t, p.Held)
		require.ErrorIs(t, h.store.Mix(t.Context(), id.Batch(p.Next), nil, nil), ErrOver)
		_, err := h.store.Batch(t.Context(), id.Batch(0))
		require.ErrorIs(t, err, ErrNoBatch)
	}
	late := h.submission()
	require.Equal(t, []Verdict{Late}, verdicts(t, h.store, late))
	found, err := h.store.Findings(t.Context())
	require.NoError(t, err)
	require.Len(t, slices.DeleteFunc(found, func(f Finding) bool { return f.Reason != "ended" }), 2)
}

// TestUncut: while a batch cannot be recorded in the rollback marks, the relay must neither hand it out nor confirm its
// source to the upstream relay. Afterwards both must work.
func TestUncut(t *testing.T) {
	h := live(t, service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), 5)
	h.restore(t, 0, 0)
	require.NoError(t, h.begin(t))
	defer h.store.Close()
	keys := h.path(partKeys)
	require.NoError(t, os.Rename(keys, keys+".away"))
	seq := progressOf(t, h.store, h.mixed).Next
	made := func([]bool) (*onion.Batch, error) { return testBatch(seq, []byte("slot")) }
	require.ErrorContains(t, mixOf(h.store, h.mixed.Batch(seq), nil, made), "couldn't read the rollback mark")
	_, err := h.store.UnconfirmedSources(t.Context(), h.mixed)
	require.ErrorContains(t, err, "couldn't read the rollback mark")
	_, err = h.store.Batch(t.Context(), h.mixed.Batch(seq))
	require.ErrorContains(t, err, "couldn't read the rollback mark")
	some := *h.taken[0]
	_, err = h.store.Commit(context.Background(), []*Submission{&some})
	require.NoError(t, err, "a retry must need no write: the mark has its steps")
	require.NoError(t, os.Rename(keys+".away", keys))
	unconfirmed, err := h.store.UnconfirmedSources(t.Context(), h.mixed)
	require.NoError(t, err)
	require.Contains(t, unconfirmed, seq)
	_, err = h.store.Batch(t.Context(), h.mixed.Batch(seq))
	require.NoError(t, err)
	reread, err := rollback.OpenMark(keys)
	require.NoError(t, err)
	require.True(t, reread.Entry(h.mixed.key()).Made.Has(seq))
}

// TestUnmarkedRetry: a report's transaction is committed, but the rollback mark cannot be written. The relay must not
// acknowledge the report or its retry until the mark is on disk.
func TestUnmarkedRetry(t *testing.T) {
	h := live(t, service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), 5)
	h.restore(t, 0, 0)
	require.NoError(t, h.begin(t))
	defer h.store.Close()
	secret := h.path(partSecret)
	require.NoError(t, os.Rename(secret, secret+".away"))
	sub := h.submission()
	for range 2 {
		_, err := h.store.Commit(t.Context(), []*Submission{sub})
		require.ErrorContains(t, err, "couldn't read the rollback mark")
	}
	require.NoError(t, os.Rename(secret+".away", secret))
	require.Equal(t, []Verdict{Repeated}, verdicts(t, h.store, sub))
}
