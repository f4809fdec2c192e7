package relay_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/relay/relaytest"
	"github.com/doona-dp/doona/task"
)

// TestFullFileSystem fills the file system of a relay's store and secret: reports are refused with 503,
// readyz says so, and when there is room again both are as before; every report comes out once, those
// from before and those that were refused.
func TestFullFileSystem(t *testing.T) {
	const n, before = 60, 40
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = n }})
	disk := filepath.Join(c.Dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o700))
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a file system of its own takes the right to mount one: %v", err)
	}
	text, err := os.ReadFile(c.RelayConfig(1))
	require.NoError(t, err)
	config := strings.NewReplacer("sqlite:", "sqlite:../disk/", "secret: ", "secret: ../disk/").Replace(string(text))
	require.NoError(t, os.WriteFile(c.RelayConfig(1), []byte(config), 0o600))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) }) // after the relay's end
	p := startProcess(t, c, 0)
	require.FileExists(t, filepath.Join(disk, "relay.db"))
	require.FileExists(t, filepath.Join(disk, "relay.secret"))
	bodies := sealAll(t, c, n)
	for i, body := range bodies[:before] {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)))
	}
	free := fill(t, disk)
	for i, body := range bodies[before:] {
		got := requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(before+i)))
		require.Equal(t, http.StatusServiceUnavailable, got.Status)
	}
	ready := func() int {
		resp, err := http.Get("http://" + p.admin + "/readyz")
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ready())
	free()
	require.Equal(t, http.StatusNoContent, ready())
	for i, body := range bodies {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)), "those from before are known")
	}
	batch, chain := c.Pull(t, 0, 0)
	require.EqualValues(t, n, chain[0].Submissions)
	values := map[uint64]bool{}
	for _, value := range c.Values(t, 0, batch)[0] {
		values[value] = true
	}
	require.Len(t, values, n)
}

// fill takes all that is left of a file system, until free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	filler, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	defer filler.Close()
	for block := make([]byte, 1<<16); len(block) > 0; {
		if _, err := filler.Write(block); err != nil {
			require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
			block = block[:len(block)/2]
		}
	}
	return func() { require.NoError(t, os.Remove(filler.Name())) }
}
