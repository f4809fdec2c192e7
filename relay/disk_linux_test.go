package relay_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/keytree"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestFullFileSystem fills the file system of a relay's store and secret. The relay must refuse reports with 503, and
// readyz must report it. When there is space again, both must recover. Every report must come out once, whether the
// relay had accepted or refused it before.
func TestFullFileSystem(t *testing.T) {
	const n, before = 60, 40
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = n }})
	disk := filepath.Join(c.Dir, "disk")
	relaytest.Mount(t, disk, "size=32m")
	moveTo(t, c, 0, disk)
	startProcess(t, c, 0)
	require.FileExists(t, filepath.Join(disk, "relay.db"))
	require.FileExists(t, filepath.Join(disk, "relay.secret"))
	bodies := sealAll(t, c, n)
	for i, body := range bodies[:before] {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)))
	}
	free := fill(t, disk)
	requireReady(t, c, false) // although no write has failed yet
	for i, body := range bodies[before:] {
		got := requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, body, relaytest.Network(before+i)))
		require.Equal(t, http.StatusServiceUnavailable, got.Status)
	}
	requireReady(t, c, false)
	free()
	requireReady(t, c, true)
	for i, body := range bodies {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)), "a known report is acknowledged")
	}
	batch, chain := c.Pull(t, 0, 0)
	require.EqualValues(t, n, chain[0].Submissions)
	values := map[uint64]bool{}
	for _, value := range c.Values(t, 0, batch)[0] {
		values[value] = true
	}
	require.Len(t, values, n)
}

// TestFullOwnersFolder fills the file system of an approved owner's folder. The relay must ask the owner to try again
// later, and leave no file of the failed attempt. When there is space again, the owner's task must be accepted.
func TestFullOwnersFolder(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	relaytest.Mount(t, disk, "size=8m")
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Config: func(_ int, cfg *relay.Config) { cfg.Owners[0].Folder = disk }}.Approving(t, 1))
	c.Start(t, 0)
	next := c.Named("one")
	free := fill(t, disk)
	_, err := c.Ask(t, 0, next)
	requireProblem(t, problem.Overloaded, err)
	require.Empty(t, entriesOf(t, c, 0))
	free()
	bundle := c.Sign(t, next)
	free = fill(t, disk)
	requireProblem(t, problem.Overloaded, c.Begin(t.Context(), t, 0, bundle))
	free()
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	fillEpoch(t, c.After(t, bundle), 0)
	require.FileExists(t, filepath.Join(disk, "owner.reserve"))
}

// TestFullMix fills the file system of a later relay's store and secret, once before a batch comes and once after the
// batch is made. readyz and the metrics must report it. The relay must not confirm to the upstream relay, but must
// accept the next hop's confirmations. When there is space again, it must continue without a restart.
func TestFullMix(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	disk := filepath.Join(c.Dir, "disk")
	relaytest.Mount(t, disk, "size=32m")
	moveTo(t, c, 1, disk)
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
	require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, batch.Manifest), "the reserve suffices for it")
	free()
	requireSoon(t, well(true))
}

// TestErasesOnAFullDisk fills the file systems of two relays until an epoch has ended. The relays must accept the next
// hop's confirmations, destroy the rest of the epoch, and erase all its keys, although both disks stay full and no
// report is accepted. When there is space again, the relays must accept reports and reserve the full space again.
func TestErasesOnAFullDisk(t *testing.T) {
	const length = 6 * time.Second
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) {
		t.Epochs = task.Epochs{Start: uint64(time.Now().Unix()) + 1, Length: task.Length(length / time.Second),
			Count: 20}
	}})
	end := time.Unix(int64(c.Open.Epochs.End(0)), 0)
	var disks, admins []string
	for hop := range 2 {
		disk := filepath.Join(c.Dir, fmt.Sprint("disk", hop))
		relaytest.Mount(t, disk, "size=32m")
		moveTo(t, c, hop, disk)
		startProcess(t, c, hop)
		disks, admins = append(disks, disk), append(admins, "http://"+c.Config(t, hop).Admin)
	}
	for i, body := range sealAll(t, c, 13) {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	require.Len(t, c.Values(t, 0, batch)[0], 10)
	waitConfirmed(t, c, 0, 1)
	require.NoError(t, relaytest.Fill(disks[0]))
	require.NoError(t, relaytest.Fill(disks[1]))
	require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 1, 0, 0, batch.Manifest), "the reserve suffices for it")
	require.True(t, time.Now().Before(end), "this machine is too slow: the epoch is over")
	requireProblem(t, problem.Overloaded, c.Post(t.Context(), 0, c.Seal(t, 0, 20), relaytest.Network(20)))

	time.Sleep(time.Until(end))
	require.Eventually(t, func() bool {
		return len(keysOfEpoch(t, c, disks[0], 0)) == 0 && len(keysOfEpoch(t, c, disks[1], 0)) == 0
	}, 20*time.Second, 10*time.Millisecond)
	t.Logf("all keys were erased %v after the epoch's end, including 1 s for clients' clocks", time.Since(end))
	for hop, admin := range admins {
		require.FileExists(t, filepath.Join(disks[hop], "filler"))
		more := filepath.Join(disks[hop], "more")
		requireSoon(t, func() bool { // the disk is full again once the relay has used the freed space
			err := os.WriteFile(more, make([]byte, 1<<20), 0o600)
			require.NoError(t, os.Remove(more))
			return err != nil
		})
		requireSoon(t, func() bool {
			epochs := c.Status(t, hop).Epochs
			return len(epochs) > 0 && epochs[0].State == "erased" && epochs[0].Batches == 2
		})
		require.Contains(t, ask(t, admin+"/readyz"), "full")
		require.NotContains(t, ask(t, admin+"/metrics"), "\ndoona_relay_store_errors_total 0\n")
	}
	for hop, admin := range admins {
		require.NoError(t, os.Remove(filepath.Join(disks[hop], "filler")))
		requireSoon(t, func() bool { return ask(t, admin+"/readyz") == "" })
		info, err := os.Stat(filepath.Join(disks[hop], "relay.db.reserve"))
		require.NoError(t, err)
		require.EqualValues(t, 13<<20, info.Size())
	}
	requireSoon(t, func() bool {
		epoch, _ := c.Open.Epochs.At(uint64(time.Now().Unix()))
		return c.Post(t.Context(), epoch, c.Seal(t, epoch, 20), relaytest.Network(20)) == nil
	})
}

// keysOfEpoch names the keys of an epoch that are still in a relay's folder.
func keysOfEpoch(t *testing.T, c *relaytest.Cascade, folder string, epoch uint64) (left []string) {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(folder, "task0.keys"))
	require.NoError(t, err)
	if _, err := keys.Key(epoch); !errors.Is(err, keyfile.ErrErased) {
		left = append(left, "HPKE")
	}
	secret, err := keytree.Open(filepath.Join(folder, "relay.secret"))
	require.NoError(t, err)
	label := store.EpochID{Task: c.Open.ID, Epoch: epoch}.Label()
	kinds := map[keytree.Label]string{"00": "names", "01": "rows", "10": "batches"} // as in store/vault.go
	for kind, name := range kinds {
		if _, err := secret.Key(label+kind, ""); !errors.Is(err, keytree.ErrCut) {
			left = append(left, name)
		}
	}
	return left
}

// TestFullServer fills the file system of a relay's PostgreSQL server. The relay must refuse reports with 503 and a
// waiting time, and lose no acknowledged report. When there is space again, the relay must continue by itself, and
// every report must come out once.
func TestFullServer(t *testing.T) {
	const n, before = 400, 100
	parent, err := os.MkdirTemp("", "relay") // the server's user cannot enter the folder of t.TempDir
	require.NoError(t, err)
	require.NoError(t, os.Chmod(parent, 0o755))
	t.Cleanup(func() { os.RemoveAll(parent) })
	disk := filepath.Join(parent, "disk")
	relaytest.Mount(t, disk, "size=96m,mode=755")
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
	t.Logf("%d of %d reports refused, %d of them accepted before", refused, n, before)
	require.Positive(t, refused)
	requireReady(t, c, false)
	free()
	c.WaitReady(t, c.Config(t, 0).Admin)
	require.NoError(t, postAll(t.Context(), c, bodies, 8, &acked))
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, n), c.Values(t, 0, batch)[0])
}

// fill uses up all free space of the file system that holds dir, until free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	require.NoError(t, relaytest.Fill(dir))
	return func() { require.NoError(t, os.Remove(filepath.Join(dir, "filler"))) }
}

// moveTo makes a relay keep its store, its secret and its HPKE keys in another folder.
func moveTo(t *testing.T, c *relaytest.Cascade, hop int, folder string) {
	t.Helper()
	text, err := os.ReadFile(c.RelayConfig(hop + 1))
	require.NoError(t, err)
	prefix := strings.TrimSuffix(folder, "/") + "/"
	config := strings.NewReplacer("sqlite:", "sqlite:"+prefix, "secret: ", "secret: "+prefix, "hpke_keys: ",
		"hpke_keys: "+prefix).Replace(string(text))
	require.NoError(t, os.WriteFile(c.RelayConfig(hop+1), []byte(config), 0o600))
	keys, err := filepath.Glob(filepath.Join(filepath.Dir(c.RelayConfig(hop+1)), "*.keys"))
	require.NoError(t, err)
	for _, from := range keys {
		raw, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(from)), raw, 0o600))
		require.NoError(t, os.Remove(from))
	}
}
