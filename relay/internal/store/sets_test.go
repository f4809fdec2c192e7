package store

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// The tables of a set: one whose epochs are the days, one that sorts before it, and one that sorts behind it.
var (
	dayTable  = testEpoch
	weekTable = EpochID{task.ID{0, 1}, 0}
	monthEnds = EpochID{task.ID{2}, 7}
)

// setSubmission returns the submission of a set with three tables and the tag. Each batch holds 10 submissions.
func setSubmission(client, tag int) *Submission {
	slot := func(table string) []byte { return fmt.Appendf(nil, "%s%95d", table, tag) }
	return &Submission{ID: dayTable, Size: 10, Quota: 1, Client: number8(client), Tag: number8(tag),
		Receipt: number8(1000*client + tag), Lanes: onion.Lanes{{slot("days ")}},
		Others: []TableSlot{{ID: weekTable, Size: 10, Open: true, Slot: slot("weeks")},
			{ID: monthEnds, Size: 10, Open: true, Slot: slot("month")}}}
}

// openIn returns how many submissions the open batches of an epoch have.
func openIn(t *testing.T, s *Store, id EpochID) (n []uint64) {
	t.Helper()
	for _, b := range progressOf(t, s, id).Open {
		n = append(n, b.Submissions)
	}
	return n
}

// slotsIn returns the slots of an open batch.
func slotsIn(t *testing.T, s *Store, b BatchID) (slots []string) {
	t.Helper()
	var epoch int64
	const find = `SELECT id FROM epochs WHERE task = $1 AND epoch = $2`
	require.NoError(t, s.read.QueryRow(find, b.Task[:], b.Epoch).Scan(&epoch))
	rows, err := s.rows(t.Context(), epoch, b)
	require.NoError(t, err)
	for row, err := range rows {
		require.NoError(t, err)
		require.Zero(t, row.Lane)
		slots = append(slots, string(row.Slot))
	}
	return slots
}

// TestSetFillsItsTables: one transaction puts a set's slots into the batches of all tables. Single reports of another
// task in the same group go on as before. The day alone decides: a replay, a used quota or a closed day stores nothing.
func TestSetFillsItsTables(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s, other := open(), EpochID{task.ID{1}, 9}
		single := aSubmission(1, 1)
		single.ID = other
		all := []*Submission{setSubmission(1, 1), single, setSubmission(2, 2), setSubmission(3, 2), setSubmission(1, 3)}
		require.Equal(t, []Verdict{Accepted, Accepted, Accepted, Replayed, Limited}, verdicts(t, s, all...))
		require.Equal(t, []Verdict{Repeated}, verdicts(t, open(), setSubmission(1, 1)))
		for _, id := range []EpochID{dayTable, weekTable, monthEnds} {
			require.Equal(t, []uint64{2}, openIn(t, s, id))
			require.Len(t, slotsIn(t, s, id.Batch(0)), 2)
			var marks int
			const count = `SELECT COUNT(*) FROM rollback_marks WHERE epoch = ` + epochOf
			require.NoError(t, s.read.QueryRow(count, id.Task[:], id.Epoch).Scan(&marks))
			require.Positive(t, marks, "every changed epoch counts a step")
		}
		require.Equal(t, []uint64{1}, openIn(t, s, other))
		for _, sub := range all {
			for _, o := range sub.Others {
				require.Equal(t, sub.Verdict == Accepted, o.Stored)
			}
		}

		for i := range 9 {
			require.Equal(t, []Verdict{Accepted}, verdicts(t, s, setSubmission(10+i, 10+i)))
		}
		require.Equal(t, []uint64{10, 1}, openIn(t, s, weekTable))
		require.NoError(t, s.Advance(t.Context(), dayTable, StateClosed))
		require.Equal(t, []Verdict{Late}, verdicts(t, open(), setSubmission(50, 50)))
		require.Equal(t, []uint64{10, 1}, openIn(t, s, weekTable))
	})
}

// TestSetSlotsAreDropped: a table that is not open, is closed, or is full gets no slot, and the submission is stored
// all the same.
func TestSetSlotsAreDropped(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		require.NoError(t, s.Advance(t.Context(), weekTable, StateClosed))
		var all []*Submission
		for i := range 12 {
			sub := setSubmission(i, i)
			sub.Others[1].Batches = 1
			all = append(all, sub)
		}
		notOpen := setSubmission(20, 20)
		notOpen.Others[1].Open = false
		for _, v := range verdicts(t, s, append(all, notOpen)...) {
			require.Equal(t, Accepted, v)
		}
		require.Equal(t, []uint64{10, 3}, openIn(t, s, dayTable))
		require.Empty(t, openIn(t, s, weekTable))
		require.Equal(t, []uint64{10}, openIn(t, s, monthEnds))
		stored := 0
		for _, sub := range all {
			require.False(t, sub.Others[0].Stored)
			if sub.Others[1].Stored {
				stored++
			}
		}
		require.Equal(t, 10, stored)
		require.False(t, notOpen.Others[1].Stored)
	})
}

// TestUnlistedSet: a table of a set that is no longer listed takes single reports. The error must say what to do.
func TestUnlistedSet(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	s, err := Open(service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), v, Process{})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []Verdict{Accepted}, verdicts(t, s, setSubmission(1, 1)))
	single := &Submission{ID: weekTable, Size: 10, Quota: 1, Client: number8(2), Tag: number8(2), Receipt: number8(2),
		Lanes: onion.Lanes{{[]byte("weeks")}}}
	_, err = s.Commit(t.Context(), []*Submission{single})
	require.ErrorContains(t, err, "which must be listed until its last day is over")
}

// TestSetsLockInOneOrder: two processes commit sets whose first tables sort in opposite orders. Neither may wait for
// the other forever.
func TestSetsLockInOneOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const n = 100
		var both sync.WaitGroup
		for process, s := range []*Store{open(), open()} {
			both.Go(func() {
				for i := range n {
					sub := setSubmission(n*process+i, n*process+i)
					sub.Size, sub.Others[0].Size, sub.Others[1].Size = 1000, 1000, 1000
					if process == 1 { // the second set has the same other tables, so that their rows are contested
						sub.ID = EpochID{task.ID{0, 0, 1}, 0}
						sub.Others[0].ID, sub.Others[1].ID = monthEnds, weekTable
					}
					_, err := s.Commit(context.Background(), []*Submission{sub})
					if err != nil || sub.Verdict != Accepted {
						t.Errorf("%v, %v", sub.Verdict, err)
					}
				}
			})
		}
		both.Wait()
		if s := open(); s.index == nil {
			var deadlocks int
			const count = `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`
			require.NoError(t, s.read.QueryRow(count).Scan(&deadlocks))
			require.Zero(t, deadlocks, "the store repeats such transactions, after a second each")
		}
		require.Equal(t, []uint64{2 * n}, openIn(t, open(), weekTable))
		require.Equal(t, []uint64{2 * n}, openIn(t, open(), monthEnds))
	})
}

// runsOf returns the number of runs of an open batch by level.
func runsOf(t *testing.T, s *Store, id EpochID) map[int]int {
	t.Helper()
	out := map[int]int{}
	const query = `SELECT level FROM runs WHERE seq = 0 AND epoch = ` + epochOf
	rows, err := s.read.Query(query, id.Task[:], id.Epoch)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var level int
		require.NoError(t, rows.Scan(&level))
		out[level]++
	}
	require.NoError(t, rows.Err())
	return out
}

// TestReshuffle: an open batch has all its slots once, in one run, or in a few if it is large; also after the relay was
// killed between any two transactions. A full batch and a closed epoch stay as they are.
func TestReshuffle(t *testing.T) {
	merging(t, 1<<20, 1000, 8000) // nothing merges by itself
	eachStore(t, func(t *testing.T, open func() *Store) {
		s, b := open(), weekTable.Batch(0)
		var want []string
		commit := func(from, to int) {
			for i := from; i < to; i++ {
				sub := setSubmission(i, i)
				sub.Size, sub.Others[0].Size, sub.Others[1].Size = 1000, 1000, 1000
				require.Equal(t, []Verdict{Accepted}, verdicts(t, s, sub))
				want = append(want, string(sub.Others[0].Slot))
			}
		}
		commit(0, 5)
		require.Equal(t, map[int]int{0: 5}, runsOf(t, s, weekTable))
		require.NoError(t, s.Reshuffle(t.Context(), b, 1000))
		require.Equal(t, map[int]int{1: 1}, runsOf(t, s, weekTable))
		require.ElementsMatch(t, want, slotsIn(t, s, b))
		before := s.ended.Load()
		require.NoError(t, s.Reshuffle(t.Context(), b, 1000))
		require.Equal(t, before, s.ended.Load(), "one run stays as it is")

		commit(5, 200)
		for after := 0; ; after += 7 { // the relay is killed after some transactions
			ctx, kill := context.WithCancel(t.Context())
			s.heartbeat = heartbeat{}
			err := s.reshuffle(killedAfter{ctx, kill, s, s.ended.Load() + uint64(after)}, b, 1000)
			kill()
			require.ElementsMatch(t, want, slotsIn(t, s, b))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled)
		}
		levels := runsOf(t, s, weekTable)
		require.Len(t, levels, 1)
		require.Greater(t, levels[1], 2, "about 23 kB in buckets of half of mergeRoom")
		require.LessOrEqual(t, levels[1], 12)
		var fresh int
		const query = `SELECT fresh FROM open WHERE epoch = ` + epochOf
		require.NoError(t, s.read.QueryRow(query, weekTable.Task[:], weekTable.Epoch).Scan(&fresh))
		require.Zero(t, fresh)

		commit(200, 202)
		levels = runsOf(t, s, weekTable)
		require.NoError(t, s.Reshuffle(t.Context(), b, uint64(len(want))), "the batch is full")
		require.Equal(t, levels, runsOf(t, s, weekTable))
		require.NoError(t, s.Advance(t.Context(), weekTable, StateClosed))
		require.NoError(t, s.Reshuffle(t.Context(), b, 1000))
		require.Equal(t, levels, runsOf(t, s, weekTable))
		require.NoError(t, s.Reshuffle(t.Context(), weekTable.Batch(3), 1000), "there is no such batch")
	})
}

// killedAfter is a context that ends after a store's transactions have reached a number.
type killedAfter struct {
	context.Context
	kill context.CancelFunc
	s    *Store
	last uint64
}

func (k killedAfter) Err() error {
	if k.s.ended.Load() >= k.last {
		k.kill()
	}
	return k.Context.Err()
}

// TestReshuffledSlotsAreInRandomOrder: slots of different transactions must be in one uniformly random order, also in a
// batch that is scattered.
func TestReshuffledSlotsAreInRandomOrder(t *testing.T) {
	for name, room := range map[string]int{"one run": 1 << 20, "buckets": 700} {
		t.Run(name, func(t *testing.T) {
			merging(t, 1<<20, 1000, room)
			v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
			require.NoError(t, err)
			s, err := Open(service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), v, Process{})
			require.NoError(t, err)
			defer s.Close()
			table := func(trial int) EpochID { return EpochID{task.ID{3}, uint64(trial)} }
			for i := range stattest.Things { // a transaction for each thing, for all trials
				var group []*Submission
				for trial := range stattest.FewTrials {
					sub := setSubmission(trial, i*stattest.FewTrials+trial)
					sub.Size, sub.Quota = 1<<20, stattest.Things
					sub.Others = []TableSlot{{ID: table(trial), Size: 1000, Open: true,
						Slot: fmt.Appendf(nil, "%c%99d", 'a'+i, 0)}}
					group = append(group, sub)
				}
				verdicts(t, s, group...)
			}
			trial := 0
			stattest.Uniform(t, stattest.FewTrials, func() (order []int) {
				b := table(trial).Batch(0)
				trial++
				require.NoError(t, s.Reshuffle(t.Context(), b, 1000))
				for _, slot := range slotsIn(t, s, b) {
					order = append(order, int(slot[0]-'a'))
				}
				return order
			})
		})
	}
}
