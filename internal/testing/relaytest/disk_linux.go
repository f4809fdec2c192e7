package relaytest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// Mount mounts an empty file system on a folder until the test ends. If this process has no right to mount, it skips
// the test; in the long form it fails the test.
func Mount(t testing.TB, folder, options string) {
	t.Helper()
	require.NoError(t, os.Mkdir(folder, 0o700))
	if err := syscall.Mount("none", folder, "tmpfs", 0, options); err != nil {
		NoMount(t, err)
	}
	t.Cleanup(func() {
		// A server's last processes may still use the file system after its main process has ended.
		require.Eventually(t, func() bool { return syscall.Unmount(folder, 0) == nil }, Patience, 10*time.Millisecond)
	})
}

// NoMount skips a test if a file system could not be mounted. In the long form it fails the test.
func NoMount(t testing.TB, err error) {
	t.Helper()
	if stattest.Long {
		t.Fatalf("couldn't mount: %v", err)
	}
	t.Skipf("this test needs the right to mount a file system: %v", err)
}

// Fill writes a file "filler" in a folder until the file system is full.
func Fill(folder string) error {
	f, err := os.Create(filepath.Join(folder, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<16); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			block = block[:len(block)/2]
		}
	}
	return nil
}
