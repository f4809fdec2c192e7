package durable_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// TestWriteFileLeavesNothingWhereItFails: a failed WriteFile must leave no temporary file, because the data may be
// keys.
func TestWriteFileLeavesNothingWhereItFails(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o700), "a folder that is not empty cannot be replaced")
	require.Error(t, durable.WriteFile(path, []byte("secret"), 0o600))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestWriteFileDoesNotFollowWhatIsThere: a temporary file may exist already, left by a crash or as another user's link.
// WriteFile must replace it and not write to it.
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

// TestWriteFileThroughLinks: WriteFile must replace a link's target, so that none of its old content remains. All names
// of a file must share one lock.
func TestWriteFileThroughLinks(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "disk", "file")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	require.NoError(t, os.Symlink("disk", filepath.Join(folder, "mount")))
	link, second := filepath.Join(folder, "link"), filepath.Join(folder, "disk", "second")
	require.NoError(t, os.Symlink("mount/../disk/second", link))
	require.NoError(t, os.Symlink(file, second))
	for _, text := range []string{"made behind the link", "secret", "less"} {
		require.NoError(t, durable.WriteFile(link, []byte(text), 0o600))
		info, err := os.Lstat(file)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular())
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 3, "WriteFile must leave nothing beside the link")

	unlock, err := durable.Lock(link)
	require.NoError(t, err)
	locked := make(chan func())
	go func() {
		again, err := durable.Lock(file)
		assert.NoError(t, err)
		locked <- again
	}()
	select {
	case <-locked:
		t.Fatal("two names of one file have two locks")
	case <-time.After(100 * time.Millisecond):
	}
	unlock()
	(<-locked)()

	require.NoError(t, os.Symlink("self", filepath.Join(folder, "self")))
	require.ErrorContains(t, durable.WriteFile(filepath.Join(folder, "self"), nil, 0o600), "too many links")
	_, err = durable.Lock(filepath.Join(folder, "self"))
	require.ErrorContains(t, err, "too many links")
}

// TestReadPrivate: ReadPrivate must refuse a file that others may read or write, and say what to do. The group may read
// another user's file, such as a credential that root gives a service.
func TestReadPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
	read := func(mode os.FileMode) error {
		require.NoError(t, os.Chmod(path, mode))
		got, err := durable.ReadPrivate(path)
		if err == nil {
			require.Equal(t, "secret", string(got))
		}
		return err
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		require.NoError(t, read(mode))
	}
	for _, mode := range []os.FileMode{0o640, 0o620, 0o610, 0o604, 0o602, 0o644, 0o777} {
		require.ErrorContains(t, read(mode), "chmod 600 "+path)
	}
	if os.Geteuid() != 0 {
		t.Log("only root may give a file away")
		return
	}
	require.NoError(t, os.Chown(path, 65532, 65532))
	for _, mode := range []os.FileMode{0o600, 0o400, 0o440, 0o640} {
		require.NoError(t, read(mode))
	}
	for _, mode := range []os.FileMode{0o620, 0o660, 0o604, 0o444, 0o644} {
		require.ErrorContains(t, read(mode), "chmod 600 "+path)
	}
}

// TestReserveIsRemoved: removed space must be free, and its folder may then be gone. Space that another file reserved
// in the same folder must stay.
func TestReserveIsRemoved(t *testing.T) {
	var r durable.Reserve
	kept, gone := t.TempDir(), t.TempDir()
	require.NoError(t, r.Add(filepath.Join(kept, "keys"), 1<<16))
	require.NoError(t, r.Add(filepath.Join(gone, "owner"), 1<<16))
	require.NoError(t, r.Fill())
	require.FileExists(t, filepath.Join(gone, "owner.reserve"))
	require.NoError(t, r.Remove(filepath.Join(gone, "owner")))
	require.NoFileExists(t, filepath.Join(gone, "owner.reserve"))
	require.NoError(t, os.RemoveAll(gone))
	require.NoError(t, r.Remove(filepath.Join(kept, "owner")))
	require.NoError(t, r.Fill())
	require.FileExists(t, filepath.Join(kept, "keys.reserve"))
	require.NoError(t, os.RemoveAll(kept))
	require.Error(t, r.Fill())
}
