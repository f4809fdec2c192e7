package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestReserve: the reserve must occupy disk space, and free it on a full disk only for operations that must continue.
// Then it must stay incomplete until there is space again.
func TestReserve(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	relaytest.Mount(t, disk, "size=4m")
	free := func() uint64 {
		_, bytes, err := durable.DiskSpace(disk)
		require.NoError(t, err)
		return bytes
	}
	other := t.TempDir()
	file := filepath.Join(disk, "file")
	reserve := filepath.Join(disk, "file.reserve")
	var r durable.Reserve
	require.NoError(t, r.WithReserve(durable.Full, func() error { return nil }))
	require.NoError(t, r.Add(file, 1<<20))
	require.NoError(t, r.Add(filepath.Join(disk, "another"), 2<<20), "the largest size of a folder must count")
	require.NoError(t, r.Add(filepath.Join(other, "file"), 1<<20))
	beside := filepath.Join(other, "beside")
	require.NoError(t, os.Mkdir(beside, 0o700))
	require.NoError(t, r.Add(filepath.Join(beside, "file"), 1<<20))
	all := free()
	require.NoError(t, r.Fill())
	require.Equal(t, all-2<<20, free())
	require.NoError(t, r.Fill())
	require.NoError(t, relaytest.Fill(disk))
	require.Zero(t, free())
	require.NoError(t, r.Short(), "the reserve must be complete")
	require.ErrorContains(t, r.CheckSpace(), "full", "there is no space beside the reserve")

	write := func() error { return durable.WriteFile(file, make([]byte, 1<<20), 0o600) }
	failed := errors.New("failed")
	require.ErrorIs(t, r.WithReserve(durable.Full, func() error { return failed }), failed)
	require.FileExists(t, reserve)
	require.True(t, durable.Full(write()))
	require.NoError(t, r.WithReserve(durable.Full, write))
	require.NoFileExists(t, reserve)
	require.ErrorContains(t, r.Short(), "in use")
	require.ErrorContains(t, r.Fill(), "only 1024 of 2048 KiB are reserved")
	require.ErrorContains(t, r.Short(), "only 1024 of 2048 KiB are reserved")
	require.Zero(t, free())
	require.FileExists(t, filepath.Join(other, "file.reserve"))

	require.NoError(t, os.Remove(filepath.Join(disk, "filler")))
	require.Error(t, r.Short(), "the reserve must stay short until Fill")
	require.NoError(t, r.Fill())
	require.NoError(t, r.Short())
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(beside, past, past))
	require.NoError(t, r.CheckSpace())
	require.Equal(t, all-3<<20, free(), "CheckSpace must delete its file")
	info, err := os.Stat(beside)
	require.NoError(t, err)
	require.True(t, past.Equal(info.ModTime()), "CheckSpace must write to one folder of a disk")
	require.Error(t, r.Add(filepath.Join(disk, "none", "file"), 1))
}
