package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// TestLargeTransactions: a transaction with at least freshRoom bytes must write level 1 runs directly, each of at most
// half of mergeRoom. Earlier level 0 runs must wait for their own merge.
func TestLargeTransactions(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const each = 3 * (rowLane + 100) // bytes per submission
		const extra = runHead + sealedExtra
		merging(t, 20*each+page, 100, 2*(7*each+extra))
		s := open()
		group := func(from, n int) (group []*Submission) {
			for i := range n {
				sub := aSubmission(from+i, from+i)
				sub.Size = 1000
				group = append(group, sub)
			}
			return group
		}
		verdicts(t, s, group(0, 1)...)
		verdicts(t, s, group(1, 40)...)
		require.Equal(t, []int{1, 6}, s.levels(t, 0), "want five runs of 7 submissions, and one run of 5")
		var most int
		const longest = `SELECT MAX(length(bytes)) FROM runs WHERE seq = 0`
		require.NoError(t, s.read.QueryRow(longest).Scan(&most))
		require.Equal(t, 7*each+extra, most)
		if s.index != nil {
			require.Equal(t, []int{2}, s.levels(t, nameRuns), "tags and clients take less space")
		}
		verdicts(t, s, group(41, 400)...)
		if s.index != nil {
			require.Equal(t, []int{2, 4}, s.levels(t, nameRuns), "want runs of 107 submissions")
		}
		requireKnown(t, s, open(), 441)
	})
}

// TestNamesAreReadBeside: after a restart, a store must read its tags and clients correctly while another transaction
// writes.
func TestNamesAreReadBeside(t *testing.T) {
	folder := t.TempDir()
	v, err := OpenOrCreateVault(filepath.Join(folder, "secret"))
	require.NoError(t, err)
	open := func() *Store {
		s, err := Open(service.SchemeSQLite+filepath.Join(folder, "relay.db"), v, Process{})
		require.NoError(t, err)
		return s
	}
	s := open()
	require.Equal(t, []Verdict{Accepted, Accepted}, verdicts(t, s, aSubmission(1, 1), aSubmission(2, 2)))
	require.NoError(t, s.Close())
	s = open()
	defer s.Close()
	writing, err := s.write.Begin()
	require.NoError(t, err)
	require.NoError(t, s.index.recall(t.Context(), s.database, testEpoch))
	require.EqualValues(t, 2, s.index.epochs[testEpoch].reports)
	require.NoError(t, writing.Rollback())
	require.Equal(t, []Verdict{Repeated}, verdicts(t, s, aSubmission(1, 1)))
}

// TestLogShrinks: after a reader has made SQLite's log grow, the log must shrink again.
func TestLogShrinks(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "relay.db")
	v, err := OpenOrCreateVault(filepath.Join(folder, "secret"))
	require.NoError(t, err)
	s, err := Open(service.SchemeSQLite+path, v, Process{})
	require.NoError(t, err)
	defer s.Close()
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		return info.Size()
	}
	last := 0
	commit := func(bytes int) {
		last++
		sub := aSubmission(last, last)
		sub.Size, sub.Lanes = 1000, [][][]byte{{make([]byte, bytes)}}
		verdicts(t, s, sub)
	}
	commit(10)
	reader, err := s.read.Query(`SELECT id FROM runs`)
	require.NoError(t, err)
	require.True(t, reader.Next())
	for range 4 {
		commit(logSize)
	}
	require.Greater(t, size(), int64(3*logSize))
	require.NoError(t, reader.Close())
	for range 4 {
		commit(logSize / 4)
	}
	require.LessOrEqual(t, size(), int64(2*logSize))
}
