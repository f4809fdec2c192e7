package store

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesAreSorted: a run of tags and clients, merged or not, must not show which tag came with which client.
func TestNamesAreSorted(t *testing.T) {
	run := func(of ...int) []byte {
		var subs []*Submission
		for _, i := range of {
			subs = append(subs, &Submission{Tag: number8(100 - i), Client: number8(i % 7)})
		}
		return namesOf(subs).pack()
	}
	runMerger := &nameRun{}
	for _, packed := range [][]byte{run(9, 3, 8), run(7, 1), run(2, 6)} {
		require.NoError(t, runMerger.add(packed))
	}
	for _, packed := range [][]byte{run(5, 1, 9, 3), runMerger.pack()} {
		var n nameRun
		require.NoError(t, n.add(packed))
		require.True(t, slices.IsSortedFunc(n.tags, func(a, b tagName) int { return bytes.Compare(a[:], b[:]) }))
		require.True(t, slices.IsSortedFunc(n.clients, func(a, b Short) int { return bytes.Compare(a[:], b[:]) }))
		require.EqualValues(t, len(n.tags), binary.BigEndian.Uint32(packed))
		require.Len(t, n.clients, len(n.tags))
	}
}

// TestRestartKeepsFresh: after a restart, a store must know the size of its level 0 runs and merge them on time.
// Otherwise these runs would show the order of arrival for longer after each restart.
func TestRestartKeepsFresh(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const each = runHead + 20 + sealedExtra // bytes per run of one tag and client
		merging(t, 4*(each+page), 3, 1<<20)
		for i := range 4 {
			s := open()
			if s.index == nil {
				return
			}
			sub := aSubmission(i, i)
			sub.Size = 1000
			require.Equal(t, []Verdict{Accepted}, verdicts(t, s, sub))
		}
		require.Equal(t, []int{0, 1}, open().levels(t, nameRuns))
	})
}

// TestLargeRunsMerge: if mergeRuns runs together are too large for one merge, those that fit must be merged. Otherwise
// a large transaction's run would never be.
func TestLargeRunsMerge(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		const each = runHead + 3*(rowLane+100) + sealedExtra // bytes per run with one submission
		merging(t, each, 3, 5*each/2)
		s := open()
		for i := range 9 {
			sub := aSubmission(i, i)
			sub.Size = 1000
			require.Equal(t, []Verdict{Accepted}, verdicts(t, s, sub))
		}
		require.Equal(t, []int{0, 1, 4}, s.levels(t, 0))
		n, rows := sealRows(t, s, 0)
		require.EqualValues(t, 9, n)
		requireRows(t, rows, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	})
}
