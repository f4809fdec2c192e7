package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/onion"
)

// TestRowsAreInRandomOrder: the slots of submissions, two each, must go to the database in a uniformly random order.
// Otherwise a report's slots could be recognized.
func TestRowsAreInRandomOrder(t *testing.T) {
	var subs []onion.Lanes
	for i := range byte(stattest.Things / 2) {
		subs = append(subs, onion.Lanes{{{2 * i}}, {{2*i + 1}}})
	}
	stattest.Uniform(t, stattest.Trials, func() (order []int) {
		for _, row := range rowsOf(subs) {
			order = append(order, int(row.Slot[0]))
		}
		return order
	})
}

// TestMergedRunsAreInRandomOrder: a merged run must have all its rows in one uniformly random order.
func TestMergedRunsAreInRandomOrder(t *testing.T) {
	stattest.Uniform(t, stattest.Trials, func() (order []int) {
		var runMerger slotRun
		for i := range byte(stattest.Things) {
			require.NoError(t, runMerger.add(packRows([]Row{{0, []byte{i}}})))
		}
		rows, size, err := splitRun(runMerger.pack())
		require.NoError(t, err)
		require.Equal(t, rowLane+1, size)
		for _, row := range rows {
			order = append(order, int(row[rowLane]))
		}
		return order
	})
}

// TestDamagedRuns: merging a damaged run with a good one must be an error.
func TestDamagedRuns(t *testing.T) {
	good := packRows([]Row{{0, []byte("slot")}, {1, []byte("slot")}})
	for _, bad := range [][]byte{{}, good[:3], good[:len(good)-1], packRows([]Row{{0, []byte("other")}}), {0, 0, 0, 1, 7}} {
		var runMerger slotRun
		require.NoError(t, runMerger.add(good))
		require.ErrorIs(t, runMerger.add(bad), errRun, "%x", bad)
	}
	names := namesOf([]*Submission{aSubmission(1, 1), aSubmission(2, 2)}).pack()
	for _, bad := range [][]byte{{}, names[:3], names[:len(names)-1], {255, 255, 255, 255}} {
		var runMerger nameRun
		require.NoError(t, runMerger.add(names))
		require.ErrorIs(t, runMerger.add(bad), errRun, "%x", bad)
	}
}

// levels returns the number of runs of each level for a batch number.
func (d *database) levels(t *testing.T, seq uint64) (out []int) {
	t.Helper()
	for level := range 9 {
		var n int
		const query = `SELECT COUNT(*) FROM runs WHERE seq = $1 AND level = $2`
		require.NoError(t, d.read.QueryRow(query, seq, level).Scan(&n))
		out = append(out, n)
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}

// TestRunsMerge: runs must be merged when they reach the limit of their level. The batch must then have all its rows,
// and the index all tags and clients, whatever the levels.
func TestRunsMerge(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const each = runHead + 3*(rowLane+100) + sealedExtra // bytes per run with one submission
		merging(t, 4*(each+page), 3, 20*each)
		s := open()
		commit := func(i int) Verdict {
			sub := aSubmission(i, i)
			sub.Size = 1000
			return verdicts(t, s, sub)[0]
		}
		for i := range 11 {
			require.Equal(t, Accepted, commit(i))
		}
		require.Equal(t, []int{3, 2}, s.levels(t, 0))
		for i := range 2 {
			require.Equal(t, Accepted, commit(11+i))
		}
		require.Equal(t, []int{1, 0, 1}, s.levels(t, 0), "one merge must have taken three of four runs")
		for i := range 40 {
			require.Equal(t, Accepted, commit(13+i))
		}
		require.Equal(t, []int{1, 1, 4}, s.levels(t, 0), "two runs of 12 submissions must not fit into one merge")
		if s.index != nil {
			require.Equal(t, []int{3, 1, 0, 1}, s.levels(t, nameRuns), "tags and clients take less space")
		}
		requireKnown(t, s, open(), 53)
		require.NoError(t, s.Sweep(t.Context()))
		require.Equal(t, []int{0}, s.counts(t, slotRuns))
	})
}

// TestMergedRunsLeaveNothing: an SQLite file must have each slot only once, although runs were merged, and merged slots
// must not show their order of arrival. The test turns off encryption, which would hide all this.
func TestMergedRunsLeaveNothing(t *testing.T) {
	const n, groups = 800, 8
	merging(t, groups*page*3/2, 1000, 0)
	path := filepath.Join(t.TempDir(), "relay.db")
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	opened, err := Open(service.SchemeSQLite+path, v, Process{})
	require.NoError(t, err)
	defer opened.Close()
	s := opened
	v.Unencrypted(testEpoch.Batch(0))
	var slots [][]byte
	for i := range n {
		sub := aSubmission(i, i)
		slot := fmt.Appendf(nil, "[%08d]%90d", i, 0)
		sub.Size, sub.Lanes = 2*n, [][][]byte{{slot}}
		slots = append(slots, slot[:10])
		verdicts(t, s, sub)
	}
	require.NoError(t, s.Scrub(t.Context()))
	require.Less(t, s.levels(t, 0)[0], 2*groups)
	require.Greater(t, s.levels(t, 0)[1], n/groups/4)
	disk, err := os.ReadFile(path)
	require.NoError(t, err)
	ordered, neighbours := 0, 0
	before := -1
	for i, slot := range slots {
		at := bytes.Index(disk, slot)
		if at >= 0 { // otherwise the slot is on the border of two pages
			require.Negative(t, bytes.Index(disk[at+1:], slot), "slot %d", i)
		}
		if at >= 0 && before >= 0 {
			neighbours++
			if at > before {
				ordered++
			}
		}
		before = at
	}
	require.Greater(t, neighbours, n*3/4, "want pairs of successive slots that are visible on the disk")
	require.InDelta(t, neighbours/2, ordered, float64(neighbours)/5, "half of the pairs must be in order")
}

// cannotMeasure skips a test that cannot measure what it should. The long form of the test, which is run for the
// measurement, fails instead.
func cannotMeasure(t *testing.T, why string) {
	t.Helper()
	if stattest.Long {
		t.Fatal(why)
	}
	t.Skip(why)
}

// written returns how many bytes this process has written to disk, in whole pages, as Linux counts them.
func written(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		cannotMeasure(t, "the system does not count written bytes")
	}
	_, after, _ := strings.Cut(string(text), "write_bytes: ")
	_, err = fmt.Sscan(after, &n)
	require.NoError(t, err)
	return n
}

// TestWritten: a report of one slot must write at most 1500 bytes to disk, with merges and marks, in transactions of 50
// reports, as many as 128 connections bring. The long form stores a million reports. A restarted store must then know
// all of them, within seconds.
func TestWritten(t *testing.T) {
	const group = 50
	n := 10_000
	if stattest.Long {
		n = 1_000_000
	}
	folder := t.TempDir()
	description := service.SchemeSQLite + filepath.Join(folder, "relay.db")
	v, err := OpenOrCreateVault(filepath.Join(folder, "secret"))
	require.NoError(t, err)
	s, err := Open(description, v, Process{})
	require.NoError(t, err)
	random := rand.NewChaCha8([32]byte{})
	submission := func() *Submission {
		sub := &Submission{ID: testEpoch, Size: uint64(2 * n), Quota: 1}
		slot := make([]byte, 130)
		for _, part := range [][]byte{sub.Client[:], sub.Tag[:], sub.Receipt[:], slot} {
			random.Read(part)
		}
		sub.Lanes = [][][]byte{{slot}}
		return sub
	}
	before, begun := written(t), time.Now()
	var last *Submission
	for range n / group {
		var subs []*Submission
		for range group {
			last = submission()
			subs = append(subs, last)
		}
		_, err := s.Commit(context.Background(), subs)
		require.NoError(t, err)
	}
	each := float64(written(t)-before) / float64(n)
	t.Logf("%d reports: %.0f bytes written and %v each", n, each, time.Since(begun)/time.Duration(n))
	if each == 0 {
		cannotMeasure(t, "the folder for temporary files is not on a disk")
	}
	require.Less(t, each, 1500.0)
	require.NoError(t, s.Close())

	begun = time.Now()
	s, err = Open(description, v, Process{})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []Verdict{Repeated}, verdicts(t, s, last))
	t.Logf("a restarted store knows the reports after %v", time.Since(begun))
}

// TestIndexIsTheStores: after a commit fails, or succeeds but reports an error, the index in memory must equal the
// store. Missing or damaged tags and clients must be an error.
func TestIndexIsTheStores(t *testing.T) {
	folder := t.TempDir()
	v, err := OpenOrCreateVault(filepath.Join(folder, "secret"))
	require.NoError(t, err)
	opened, err := Open(service.SchemeSQLite+filepath.Join(folder, "relay.db"), v, Process{})
	require.NoError(t, err)
	defer opened.Close()
	s := opened
	require.Equal(t, []Verdict{Accepted}, verdicts(t, s, aSubmission(1, 1)))

	_, err = s.write.Exec("ALTER TABLE rollback_marks RENAME TO hidden; ALTER TABLE open RENAME TO hidden2")
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), []*Submission{aSubmission(2, 2)})
	require.Error(t, err)
	_, err = s.write.Exec("ALTER TABLE hidden RENAME TO rollback_marks; ALTER TABLE hidden2 RENAME TO open")
	require.NoError(t, err)
	require.Equal(t, []Verdict{Accepted}, verdicts(t, s, aSubmission(2, 2)), "the failed commit stored this report")

	s.index.epochs[testEpoch] = newKnown() // as if the answers to the last commits had been lost
	require.Equal(t, []Verdict{Repeated, Limited, Accepted}, verdicts(t, s, aSubmission(2, 2), aSubmission(1, 8),
		aSubmission(3, 3)))

	require.NoError(t, s.Advance(t.Context(), EpochID{testEpoch.Task, 9}, StateClosed))
	require.Len(t, s.index.epochs, 1)
	_, err = s.write.Exec("ALTER TABLE rollback_marks RENAME TO hidden")
	require.NoError(t, err)
	require.Error(t, s.EndAll(t.Context(), []EpochID{testEpoch}, nil, "why"))
	require.Len(t, s.index.epochs, 1, "the epoch has not ended, so its index must stay")
	_, err = s.write.Exec("ALTER TABLE hidden RENAME TO rollback_marks")
	require.NoError(t, err)
	var id int64
	var run []byte
	const some = `SELECT id, bytes FROM runs WHERE seq = 4294967296 LIMIT 1`
	require.NoError(t, s.read.QueryRow(some).Scan(&id, &run))
	bad := bytes.Clone(run)
	bad[len(bad)-1] ^= 1
	for _, change := range []struct {
		query string
		args  []any
		says  string
	}{
		{`UPDATE runs SET bytes = $2 WHERE id = $1`, []any{id, bad}, "is damaged"},
		{`UPDATE runs SET bytes = other.bytes FROM runs other WHERE runs.id = $1 AND other.seq = 4294967296
			AND other.id <> $1`, []any{id}, "a run of rows is damaged"},
		{`DELETE FROM runs WHERE id = $1`, []any{id}, "epoch 3 has 3 reports, but tags of 2 and clients of 2"},
	} {
		_, err = s.write.Exec(change.query, change.args...)
		require.NoError(t, err)
		clear(s.index.epochs)
		_, err = s.Commit(t.Context(), []*Submission{aSubmission(1, 1)})
		require.ErrorContains(t, err, change.says)
	}
	require.NoError(t, s.Advance(t.Context(), testEpoch, StateClosed))
	require.Equal(t, []Verdict{Late}, verdicts(t, s, aSubmission(1, 1)), "a late commit must not need tags and clients")
	require.Empty(t, s.index.epochs)
}

// TestTable: a table must behave like a map at any size, and take little more memory than its entries.
func TestTable(t *testing.T) {
	defer func(before int) { offHeap = before }(offHeap)
	offHeap = 4 << 10
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{clientValue, tagValue} {
		of, want := table{value: size}, map[Short]uint32{}
		var keys []Short
		for i := range 100_000 {
			key := number8(i / 2) // consecutive keys, random ones, and repeated ones
			switch i % 3 {
			case 1:
				binary.BigEndian.PutUint64(key[:], random.Uint64())
			case 2:
				key = keys[random.IntN(len(keys))]
			}
			keys = append(keys, key)
			require.Equal(t, want[key], of.get(key))
			number := 1 + random.Uint32N(1<<(8*size)-1)
			want[key] = number
			of.set(key, number)
		}
		for key, number := range want {
			require.Equal(t, number, of.get(key))
		}
		require.Zero(t, of.get(Short{255, 254}))
		full := float64(len(want)*(8+size)) / float64(of.bytes())
		require.Greater(t, full, 0.78)
		require.Less(t, full, 0.91)
		require.Greater(t, of.bytes()/len(of.shards), offHeap, "want shards outside of Go's heap")
		of.free()
		require.Zero(t, of.bytes())
	}
}

// TestManySubmissions: the store must count a client's submissions correctly beyond 255, which is what a table entry
// holds, also after a restart.
func TestManySubmissions(t *testing.T) {
	const quota = 600
	k := newKnown()
	for i := range uint64(quota) {
		require.Equal(t, i, k.count(number8(7)))
		k.addClient(number8(7))
	}
	require.EqualValues(t, quota, k.count(number8(7)))
	require.Zero(t, k.count(number8(8)))
	eachStore(t, func(t *testing.T, open func() *Store) {
		var group []*Submission
		for i := range quota + 1 {
			sub := aSubmission(7, i)
			sub.Size, sub.Quota = 1000, quota
			group = append(group, sub)
		}
		want := slices.Repeat([]Verdict{Accepted}, quota)
		require.Equal(t, append(want, Limited), verdicts(t, open(), group...))
		require.Equal(t, []Verdict{Limited}, verdicts(t, open(), group[quota]))
	})
}
