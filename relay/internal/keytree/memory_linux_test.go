package keytree_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/memscan"
	"github.com/doona-dp/doona/relay/internal/keytree"
)

// TestCutsLeaveNothing: a cut derives values, in a goroutine that has ended. Once these values are cut themselves, they
// must be gone from memory, even if the file could not be written at first.
func TestCutsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	path, twin, other := filepath.Join(dir, "path"), filepath.Join(dir, "twin"), filepath.Join(dir, "other")
	f, kept := open(t, path), open(t, other)
	raw, err := durable.ReadPrivate(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(twin, raw, 0o600))
	clear(raw)
	cut := func(f *keytree.File, labels ...keytree.Label) (err error) {
		var ended sync.WaitGroup
		ended.Go(func() { err = f.Cut(labels...) })
		ended.Wait()
		return err
	}
	begun := open(t, twin)
	require.NoError(t, cut(begun, label(1)))
	needles := memscan.File(t, twin) // values that a cut of labels 1 and 2 derives and then cuts
	require.NoError(t, cut(begun, ""))

	require.NoError(t, os.Mkdir(path+".new", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path+".new", "file"), nil, 0o600))
	require.Error(t, cut(f, label(1), label(2)))
	require.NoError(t, os.RemoveAll(path+".new"))
	require.NoError(t, cut(f, label(1), label(2)))
	left := memscan.File(t, path)
	require.Len(t, left, 16)
	memscan.RequireFound(t, left...)
	require.NoError(t, cut(f, ""))
	memscan.RequireGone(t, append(needles, left...), memscan.File(t, other)...)
	require.True(t, kept.Has(""))
}
