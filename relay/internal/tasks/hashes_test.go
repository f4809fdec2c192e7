package tasks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/handover"
)

// TestManifestHashesBelow: the cache must read each manifest once, except the last one, which it must read first every
// time.
func TestManifestHashesBelow(t *testing.T) {
	var h ManifestHashes
	manifests := [][]byte{{0}, {1}, {2}, {3}}
	var read []uint64
	below := func(seq uint64) (handover.ManifestHashes, error) {
		read = nil
		return h.Below(7, seq, func(seq uint64) ([]byte, error) {
			if read = append(read, seq); seq >= uint64(len(manifests)) {
				return nil, errors.New("not there")
			}
			return manifests[seq], nil
		})
	}
	for _, tt := range []struct {
		seq  uint64
		want []uint64
	}{{0, nil}, {3, []uint64{2, 0, 1}}, {3, []uint64{2}}, {4, []uint64{3}}, {2, []uint64{1}}, {4, []uint64{3}}} {
		hashes, err := below(tt.seq)
		require.NoError(t, err)
		require.Equal(t, tt.want, read)
		require.Equal(t, handover.HashManifests(manifests[:tt.seq]...), hashes)
	}
	_, err := below(1 << 60)
	require.Error(t, err)
	require.Equal(t, []uint64{1<<60 - 1}, read)
	manifests[3] = []byte("another")
	hashes, err := below(4)
	require.NoError(t, err)
	require.Equal(t, handover.HashManifests(manifests...), hashes)
	h.Forget(7)
	_, err = below(2)
	require.NoError(t, err)
	require.Len(t, read, 2)
}
