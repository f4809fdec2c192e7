package verifier

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlocksComeBack: every block can be read until it is freed, from memory and from the file. Freed space of the file
// is used again.
func TestBlocksComeBack(t *testing.T) {
	const most = 1 << 10
	folder := t.TempDir()
	s := newScratch(folder, most, 5*most)
	random := rand.New(rand.NewPCG(1, 2))
	type kept struct {
		block scratchBlock
		want  []byte
	}
	var all []kept
	var room []byte
	for range 2000 {
		if len(all) > 40 || len(all) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(all))
			s.Free(all[i].block)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			continue
		}
		data := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(most+1))
		b, err := s.Put(bytes.Clone(data))
		require.NoError(t, err)
		all = append(all, kept{b, data})
		for _, k := range all {
			got, next, err := s.Get(k.block, room)
			require.NoError(t, err)
			room = next
			require.True(t, bytes.Equal(k.want, got))
		}
	}
	require.Positive(t, s.PeakFileBytes())
	require.LessOrEqual(t, s.PeakFileBytes(), int64(42*(most+16)))
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, files, "the file has no name")
	_, err = s.Put(make([]byte, most+1))
	require.Error(t, err)
}

// TestAFullDiskIsAnError: a failed write is an error, and earlier blocks can still be read.
func TestAFullDiskIsAnError(t *testing.T) {
	s := newScratch("/nonexistent", 10, 10)
	b, err := s.Put(make([]byte, 10))
	require.NoError(t, err)
	_, err = s.Put([]byte{1})
	require.Error(t, err)
	got, _, err := s.Get(b, nil)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 10), got)
	s.Free(b)
	_, err = s.Put([]byte{1})
	require.NoError(t, err)
}
