package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
)

func TestWriteFileReplacesWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"first", "a longer second", "3"} {
		require.NoError(t, durable.WriteFile(path, []byte(text), 0o600))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}

// TestWriteFileLeavesNothingWhereItFails: what it was to write may be keys.
func TestWriteFileLeavesNothingWhereItFails(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o700), "a folder that is not empty cannot be replaced")
	require.Error(t, durable.WriteFile(path, []byte("secret"), 0o600))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestWriteFileDoesNotFollowWhatIsThere: a leftover of a crash, or a link that someone else made,
// is replaced and not written to.
func TestWriteFileDoesNotFollowWhatIsThere(t *testing.T) {
	folder := t.TempDir()
	path, elsewhere := filepath.Join(folder, "file"), filepath.Join(folder, "elsewhere")
	require.NoError(t, os.WriteFile(elsewhere, []byte("untouched"), 0o644))
	require.NoError(t, os.Symlink(elsewhere, path+".new"))
	require.NoError(t, durable.WriteFile(path, []byte("secret"), 0o600))
	got, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, "untouched", string(got))
}
