package spill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// order returns the order in which a shuffle returns n slots of one lane.
func order(t *testing.T, s *Shuffle, n int) (out []int) {
	t.Helper()
	defer s.Close()
	for i := range n {
		require.NoError(t, s.Add(0, []byte{byte(i), 1, 2}))
	}
	require.NoError(t, s.Each(func(lane int, slot []byte) error {
		require.Equal(t, []byte{1, 2}, slot[1:])
		out = append(out, int(slot[0]))
		return nil
	}))
	return out
}

// TestUniform: all orders of the slots must be equally likely: with 1, 2, 3 and 9 buckets, in memory and through the
// file, and whether or not the number of slots that the caller announced is right.
func TestUniform(t *testing.T) {
	const n = stattest.Things
	for name, c := range map[string]struct {
		expect uint64
		memory int
		spills bool
	}{
		"in memory":           {n, 1 << 20, false},
		"two buckets":         {n, 3 * n * 2, false},
		"three, and the file": {n, 3*n - 1, true},
		"nine, and the file":  {n, 6, true},
		"more than expected":  {1, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			stattest.Uniform(t, stattest.Trials/16, func() []int {
				s, err := New(folder, 3, []uint64{c.expect}, c.memory)
				require.NoError(t, err)
				out := order(t, s, n)
				require.Equal(t, c.spills, s.Spilled() > 0)
				return out
			})
		})
	}
}

// TestFile: the file has no name, holds no slot in the clear, and is refused if it was changed.
func TestFile(t *testing.T) {
	const n = 5000
	folder := t.TempDir()
	s, err := New(folder, 40, []uint64{n, n}, 1<<14)
	require.NoError(t, err)
	defer s.Close()
	slot := func(lane, i int) []byte {
		out := bytes.Repeat([]byte{byte(lane)}, 40)
		binary.BigEndian.PutUint32(out, uint32(i))
		return out
	}
	for i := range n {
		require.NoError(t, s.Add(1, slot(1, i)))
		require.NoError(t, s.Add(0, slot(0, i)))
	}
	require.Error(t, s.Add(0, make([]byte, 39)))
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Greater(t, s.Spilled(), int64(2*n*40-1<<14-40))
	disk, err := io.ReadAll(io.NewSectionReader(s.file, 0, s.end))
	require.NoError(t, err)
	require.NotContains(t, string(disk), string(make([]byte, 8)))
	require.NotContains(t, string(disk), string(bytes.Repeat([]byte{1}, 8)))

	next, seen := [2]int{}, map[string]bool{}
	require.NoError(t, s.Each(func(lane int, got []byte) error {
		require.Equal(t, lane, int(got[39]))
		for _, b := range slices.Concat(s.lanes...) {
			require.Nil(t, b.slots, "memory is used beside the current bucket")
		}
		if next[lane]++; lane == 0 {
			require.Zero(t, next[1], "lane after lane")
		}
		seen[string(got)] = true
		return nil
	}))
	require.Equal(t, [2]int{n, n}, next)
	require.Len(t, seen, 2*n)
	require.NoError(t, s.Each(func(int, []byte) error { return errors.New("a slot") }), "it has none left")

	for i := range n {
		require.NoError(t, s.Add(0, slot(0, i)))
	}
	var one [1]byte
	_, err = s.file.ReadAt(one[:], s.end-100)
	require.NoError(t, err)
	one[0] ^= 1
	_, err = s.file.WriteAt(one[:], s.end-100)
	require.NoError(t, err)
	require.ErrorContains(t, s.Each(func(int, []byte) error { return nil }), "it was modified")
}

// TestNoFolder: failing to create the file is an error, and no slot is lost silently.
func TestNoFolder(t *testing.T) {
	s, err := New("/dev/null/none", 3, []uint64{1}, 6)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Add(0, make([]byte, 3)))
	require.NoError(t, s.Add(0, make([]byte, 3)))
	require.ErrorContains(t, s.Add(0, make([]byte, 3)), "couldn't create the shuffle's file")
}
