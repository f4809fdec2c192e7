package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestReserve: the reserve really takes space. On a full disk it is freed for what must continue, and for nothing else.
// It stays short until there is space again, and takes meanwhile what there is.
func TestReserve(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	relaytest.Mount(t, disk, "size=4m")
	room := func() uint64 {
		_, free, err := durable.Room(disk)
		require.NoError(t, err)
		return free
	}
	other := t.TempDir()
	file := filepath.Join(disk, "file")
	kept := filepath.Join(disk, "file.reserve")
	var r durable.Reserve
	require.NoError(t, r.WithReserve(durable.Full, func() error { return nil }))
	require.NoError(t, r.Keep(file, 1<<20))
	require.NoError(t, r.Keep(filepath.Join(disk, "another"), 2<<20), "the largest of a folder counts")
	require.NoError(t, r.Keep(filepath.Join(other, "file"), 1<<20))
	all := room()
	require.NoError(t, r.Take())
	require.Equal(t, all-2<<20, room())
	require.NoError(t, r.Take())
	require.NoError(t, relaytest.Fill(disk))
	require.Zero(t, room())
	require.NoError(t, r.Short(), "it is all there")
	require.ErrorContains(t, r.HasRoom(), "full", "beside it")

	write := func() error { return durable.WriteFile(file, make([]byte, 1<<20), 0o600) }
	failed := errors.New("failed")
	require.ErrorIs(t, r.WithReserve(durable.Full, func() error { return failed }), failed)
	require.FileExists(t, kept)
	require.True(t, durable.Full(write()))
	require.NoError(t, r.WithReserve(durable.Full, write))
	require.NoFileExists(t, kept)
	require.ErrorContains(t, r.Short(), "in use")
	require.ErrorContains(t, r.Take(), "1024 of 2048 KiB are kept")
	require.ErrorContains(t, r.Short(), "1024 of 2048 KiB are kept")
	require.Zero(t, room())
	require.FileExists(t, filepath.Join(other, "file.reserve"))

	require.NoError(t, os.Remove(filepath.Join(disk, "filler")))
	require.Error(t, r.Short(), "until it is taken")
	require.NoError(t, r.Take())
	require.NoError(t, r.Short())
	require.NoError(t, r.HasRoom())
	require.Equal(t, all-3<<20, room(), "what was tried is given back")
	require.Error(t, r.Keep(filepath.Join(disk, "none", "file"), 1))
}
