package store

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// mixed makes a batch of several pieces with bytes random bytes each, and with new tags.
func mixed(t *testing.T, s *Store, seq uint64, pieces, bytes, tags int) {
	t.Helper()
	var all []Short
	for i := range tags {
		all = append(all, number8(1_000_000*int(seq+1)+i))
	}
	require.NoError(t, s.Mix(t.Context(), testEpoch.Batch(seq), all, func(_ *Fresh, put Put) (*Made, error) {
		for range pieces {
			piece := make([]byte, bytes)
			rand.Read(piece)
			if err := put(piece); err != nil {
				return nil, err
			}
		}
		return &Made{Manifest: []byte("manifest"), Head: []byte("head")}, nil
	}))
}

// TestEpochsAreErasedBitByBit: rows that take several transactions to delete must all be gone once the epoch has its
// new state, and none before.
func TestEpochsAreErasedBitByBit(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		inGroups(t, 2, 1000)
		s := open()
		for seq := range uint64(2) {
			mixed(t, s, seq, 5, 600, 20)
		}
		require.NoError(t, s.Complete(t.Context(), testEpoch, []byte("end")))
		require.Equal(t, []int{40, 12}, s.counts(t, "seen", "pieces"), "want 10 pieces and 2 heads")
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateErased))
		require.Equal(t, []int{0, 12}, s.counts(t, "seen", "pieces"))
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateExpired))
		require.Equal(t, []int{0, 0}, s.counts(t, "seen", "pieces"))
		require.Equal(t, StateExpired, progressOf(t, s, testEpoch).State)
	})
}

// TestErasingTakesLittleRoom: whatever an SQLite store deletes, its log must take no more space than EraseRoom, which
// the relay reserves.
func TestErasingTakesLittleRoom(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "relay.db")
	v, err := OpenOrCreateVault(filepath.Join(folder, "secret"))
	require.NoError(t, err)
	opened, err := Open(service.SchemeSQLite+path, v, Process{})
	require.NoError(t, err)
	defer opened.Close()
	s := opened
	for seq := range uint64(2) {
		mixed(t, s, seq, 24, 1<<20, 50_000)
	}
	require.NoError(t, s.Scrub(t.Context()))
	var most atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil { // look often, because SQLite truncates the log
			if info, err := os.Stat(path + "-wal"); err == nil {
				most.Store(max(most.Load(), info.Size()))
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	require.NoError(t, s.Confirm(t.Context(), testEpoch.Batch(0)))
	require.NoError(t, s.Sweep(t.Context()))
	require.NoError(t, s.Complete(t.Context(), testEpoch, []byte("end")))
	require.NoError(t, s.Advance(t.Context(), testEpoch, StateErased))
	require.NoError(t, s.Advance(t.Context(), testEpoch, StateExpired))
	stop()
	looking.Wait()
	t.Logf("the log took at most %d KiB of %d KiB", most.Load()>>10, EraseRoom()>>10)
	require.Greater(t, most.Load(), int64(logSize))
	require.LessOrEqual(t, most.Load(), EraseRoom())
	require.Equal(t, []int{0, 0, 0}, s.counts(t, "seen", "runs", "pieces"))
}
