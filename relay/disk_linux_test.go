package relay_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestFullFileSystem fills the file system of a relay's store and secret: reports are refused with 503,
// readyz says so, and when there is room again both are as before; every report comes out once, those
// from before and those that were refused.
func TestFullFileSystem(t *testing.T) {
	const n, before = 60, 40
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = n }})
	disk := filepath.Join(c.Dir, "disk")
	mount(t, disk, "size=8m")
	text, err := os.ReadFile(c.RelayConfig(1))
	require.NoError(t, err)
	config := strings.NewReplacer("sqlite:", "sqlite:../disk/", "secret: ", "secret: ../disk/").Replace(string(text))
	require.NoError(t, os.WriteFile(c.RelayConfig(1), []byte(config), 0o600))
	startProcess(t, c, 0)
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
	requireReady(t, c, false)
	free()
	requireReady(t, c, true)
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

// TestFullMix fills the file system of a later relay's store and secret, before a batch comes and after it is made:
// readyz and the metrics say so, the relays before and behind are told to try again, and when there is room again it
// all goes on without a restart.
func TestFullMix(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	disk := filepath.Join(c.Dir, "disk")
	mount(t, disk, "size=8m")
	text, err := os.ReadFile(c.RelayConfig(2))
	require.NoError(t, err)
	config := strings.NewReplacer("sqlite:", "sqlite:../disk/", "secret: ", "secret: ../disk/").Replace(string(text))
	require.NoError(t, os.WriteFile(c.RelayConfig(2), []byte(config), 0o600))
	first := c.StartFirst(t)
	startProcess(t, c, 1)
	admin := "http://" + c.Config(t, 1).Admin
	well := func(ready bool) func() bool {
		return func() bool {
			status, metrics := ask(t, admin+"/readyz"), ask(t, admin+"/metrics")
			return ready == (status == "") && ready == strings.Contains(metrics, "\ndoona_relay_ready 1\n") &&
				(ready || !strings.Contains(metrics, "\ndoona_relay_store_errors_total 0\n"))
		}
	}
	requireSoon(t, well(true))
	free := fill(t, disk)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
	requireSoon(t, well(false))
	require.False(t, first.Confirmed(0, 0))
	free()
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
	requireSoon(t, well(true))
	requireSoon(t, func() bool { return first.Confirmed(0, 0) })

	free = fill(t, disk)
	err = c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, batch.Manifest)
	if err != nil { // deleting takes room in the store's log, which it may have
		requireLater(t, requireProblem(t, problem.Overloaded, err).RetryAfter)
		requireSoon(t, well(false))
	}
	free()
	require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, batch.Manifest))
	requireSoon(t, well(true))
}

// ask returns the text of an answer, "" for none.
func ask(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// mount mounts an empty file system until the test and what it has started since have ended.
func mount(t *testing.T, folder, options string) {
	t.Helper()
	require.NoError(t, os.Mkdir(folder, 0o700))
	if err := syscall.Mount("none", folder, "tmpfs", 0, options); err != nil {
		t.Skipf("a file system of its own takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		// A server's last processes may outlive the one that was waited for.
		require.Eventually(t, func() bool { return syscall.Unmount(folder, 0) == nil }, relaytest.Patience,
			10*time.Millisecond)
	})
}

// TestFullServer fills the file system of a PostgreSQL server under a relay: reports are refused with 503
// and a wait, nothing that was acknowledged is lost, and when there is room again the relay goes on by
// itself, and every report comes out once.
func TestFullServer(t *testing.T) {
	const n, before = 400, 100
	parent, err := os.MkdirTemp("", "relay") // that of t.TempDir is closed to the server's user
	require.NoError(t, err)
	require.NoError(t, os.Chmod(parent, 0o755))
	t.Cleanup(func() { os.RemoveAll(parent) })
	disk := filepath.Join(parent, "disk")
	mount(t, disk, "size=96m,mode=755")
	server := startServer(t, disk)
	url, err := server.Database()
	require.NoError(t, err)
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = n },
		Config: func(_ int, cfg *relay.Config) { cfg.Store = url }})
	c.Start(t, 0)
	bodies := sealAll(t, c, n)
	var acked atomic.Int64
	require.NoError(t, postAll(t.Context(), c, bodies[:before], 8, &acked))
	refused := 0
	free := fill(t, disk)
	for i, body := range bodies {
		if err := c.Post(t.Context(), 0, body, relaytest.Network(i)); err != nil {
			requireLater(t, requireProblem(t, problem.Overloaded, err).RetryAfter)
			refused++
		}
	}
	t.Logf("%d of %d reports refused, of which %d had been taken before", refused, n, before)
	require.Positive(t, refused)
	requireReady(t, c, false)
	free()
	c.WaitReady(t, c.Config(t, 0).Admin)
	require.NoError(t, postAll(t.Context(), c, bodies, 8, &acked))
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, n), c.Values(t, 0, batch)[0])
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
