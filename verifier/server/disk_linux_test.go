package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestFullDisk: a verifier is not ready while its disk is full, even before it has a batch to store.
func TestFullDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	relaytest.Mount(t, disk, "size=8m")
	c := newCascade(t, 1, 1)
	c.StartFirst(t)
	r := serve(t, config(t, c, disk, 0))
	ready := func(want int) {
		t.Helper()
		r.wait(t, c.Open, func(summary) bool {
			status, _ := fetch(t, r.admin+"/readyz")
			return status == want
		})
	}
	ready(http.StatusNoContent)
	require.NoError(t, relaytest.Fill(disk))
	status, text := fetch(t, r.admin+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "the disk of "+disk+" is full")
	require.Equal(t, "0", r.metric(t, "doona_verifier_ready"))
	require.NoError(t, os.Remove(filepath.Join(disk, "filler")))
	ready(http.StatusNoContent)
	require.Equal(t, "1", r.metric(t, "doona_verifier_ready"))
	require.NoFileExists(t, filepath.Join(disk, "verifier.room"))
}
