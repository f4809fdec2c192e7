package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/memscan"
)

// TestDestroyedKeysAreGone: after a key is destroyed it must be nowhere in memory, not even on the stacks of goroutines
// that used it and have ended, as those of requests do.
func TestDestroyedKeysAreGone(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	const n = 64 // Many, because later goroutines may overwrite some of the stacks.
	ids := make([]EpochID, n)
	needles := make([]*memscan.Needle, n)
	for i := range ids {
		ids[i] = EpochID{testEpoch.Task, uint64(i)}
		key, err := v.file.Key(ids[i].kindLabel(kindEpoch), "hash")
		require.NoError(t, err)
		needles[i] = memscan.New(fmt.Sprintf("epoch %d", i), key)
	}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			key, err := v.EpochKey(id)
			if err != nil {
				t.Error(err)
				return
			}
			key.Tag([]byte("a tag"))
		})
	}
	all.Wait()
	memscan.RequireFound(t, needles...)
	for _, id := range ids[1:] {
		require.NoError(t, v.DestroyEpochKey(id))
	}
	memscan.RequireGone(t, needles[1:], needles[0])
	_, err = v.EpochKey(ids[0])
	require.NoError(t, err)
}
