package relay_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
)

// TestRoomIsKeptWhereKeysAre: the relay must reserve disk space in each folder with keys, even if all tasks' keys are
// in the relay's own file, or a stream's folder is on a separate disk. It must not reserve space elsewhere, such as in
// the working directory.
func TestRoomIsKeptWhereKeysAre(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	cfg := c.Config(t, 0)
	keys, next, here := filepath.Join(t.TempDir(), "relay.keys"), filepath.Join(t.TempDir(), "next"), t.TempDir()
	require.NoError(t, os.Rename(cfg.Tasks[0].HPKEKeys, keys))
	require.NoError(t, os.Mkdir(next, 0o700))
	cfg.HPKEKeys, cfg.Tasks[0].HPKEKeys, cfg.Tasks[0].Successors = keys, "", next
	t.Chdir(here)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	store := filepath.Join(filepath.Dir(cfg.Secret), "relay.db")
	for _, file := range []string{store, keys, filepath.Join(next, "keys")} {
		require.FileExists(t, file+".reserve")
	}
	for _, folder := range []string{here, filepath.Dir(here)} {
		stray, err := filepath.Glob(filepath.Join(folder, "*.reserve"))
		require.NoError(t, err)
		require.Empty(t, stray)
	}
}
