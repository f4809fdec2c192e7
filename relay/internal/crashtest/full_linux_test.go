package crashtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// TestFull fills the disk of each party at random moments, under load, and empties or enlarges it again. No
// acknowledged report may be lost or delivered twice, and no client may get two tokens. A party that cannot write must
// report that it is not ready. All must recover by themselves, and no key may outlive its epoch. The long form fills
// each disk 50 times, with SQLite, with PostgreSQL and with an issuer. DOONA_FIGURES names a file for the counts.
func TestFull(t *testing.T) {
	p, times := short, 2
	parts := map[string]func(*testing.T, plan, int) any{"sqlite": fullSQLite}
	if stattest.Long { // the short form leaves them to TestFullServer and TestFullDisk
		p, times, parts["postgres"], parts["issuer"] = full, 50, fullPostgres, fullIssuer
	}
	var mu sync.Mutex // guards counted
	counted := map[string]any{}
	t.Run("parts", func(t *testing.T) {
		for name, fill := range parts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := fill(t, p, times)
				mu.Lock()
				defer mu.Unlock()
				counted[name] = f
			})
		}
	})
	out, err := json.MarshalIndent(counted, "", " ")
	require.NoError(t, err)
	t.Logf("%s", out)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

func fullSQLite(t *testing.T, p plan, times int) any {
	w := newWorld(t, p, 2, nil)
	disks := []*disk{newDisk(t, w.folder(0), w.relays[0]), newDisk(t, w.folder(1), w.relays[1])}
	for i, v := range w.verifiers {
		require.NoError(t, os.MkdirAll(w.data(i), 0o700))
		admin := relaytest.FreeAddress(t)
		v.args = append(v.args, "--admin", admin)
		disks = append(disks, newDisk(t, w.data(i), v))
		disks[len(disks)-1].admins = []string{admin}
	}
	return w.fillAll(t, "sqlite", disks, times, 32)
}

// fullPostgres fills the disk of the PostgreSQL server of all relays; the first relay has two processes. If the server
// ends, for example because its log has no space, the test starts it again, as a service manager would.
func fullPostgres(t *testing.T, p plan, times int) any {
	parent, err := os.MkdirTemp("", "full") // the server's user cannot enter the folder of t.TempDir
	require.NoError(t, err)
	require.NoError(t, os.Chmod(parent, 0o755))
	t.Cleanup(func() { os.RemoveAll(parent) })
	d := &disk{name: "postgres", folder: filepath.Join(parent, "disk"), mib: 512, mode: "755"}
	require.NoError(t, os.Mkdir(d.folder, 0o755))
	d.mount(t)
	server := startServer(t, d.folder)
	require.NoError(t, server.KeepLogShort())
	w := newWorld(t, p, 2, server)
	for _, relay := range w.relays {
		d.admins = append(d.admins, relay.admin)
	}
	ctx, stop := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { server.KeepRunning(ctx) })
	defer keeping.Wait()
	defer stop()
	const clients = 8 // with 32 clients, a slow server seals reports more slowly than they come
	return w.fillAll(t, "postgres", []*disk{d}, times, clients)
}

// fillAll fills each disk repeatedly and independently, under load, and accounts for every report.
func (w *world) fillAll(t *testing.T, store string, disks []*disk, times, clients int) *fullFigures {
	begun := time.Now()
	keys := w.private(t)
	for _, p := range w.all() {
		require.NoError(t, p.start())
	}
	load := startLoad(t.Context(), w, clients, 200*time.Millisecond)
	if err := fillEach(t.Context(), disks, times, w.plan.pause); err != nil {
		t.Fatal(err, w.logs())
	}
	all, last := load.end(t)
	for _, p := range w.all() {
		require.NoError(t, p.check(), "no process may end: %s", w.logs())
	}
	w.finishAll(t, last)

	f := &fullFigures{figures: figures{Store: store, Hops: len(w.proxies), Epochs: last + 1,
		Unanswered: load.attempts.Load()}, Disks: map[string]diskFigures{}}
	w.account(t, all, last, &f.figures)
	w.checkErased(t, keys, last)
	require.NotZero(t, f.Delivered)
	for _, d := range disks {
		f.Disks[d.name] = d.figures(times)
	}
	f.Seconds = time.Since(begun).Seconds()
	return f
}

// fillEach fills every disk repeatedly, and returns when all are done.
func fillEach(ctx context.Context, disks []*disk, times int, pause time.Duration) error {
	failed := make([]error, len(disks))
	var filling sync.WaitGroup
	for i, d := range disks {
		filling.Go(func() { failed[i] = d.fillAgain(ctx, times, pause) })
	}
	filling.Wait()
	return errors.Join(failed...)
}

// fullFigures are the counts that a run prints.
type fullFigures struct {
	figures
	Disks map[string]diskFigures `json:"disks"`
}

// diskFigures count how often a disk was full, and the parties' answers meanwhile.
type diskFigures struct {
	Filled  int     `json:"filled"`
	Slowest float64 `json:"not_ready_after_seconds"`    // longest time until a party reported it
	Unready float64 `json:"of_later_answers_not_ready"` // share of later answers while the disk was full
}

func (d *disk) figures(times int) diskFigures {
	return diskFigures{times, d.slowest.Seconds(), float64(d.unready) / float64(d.asked)}
}

// disk is a file system that one party or several use.
type disk struct {
	name   string // names its parties
	folder string
	admins []string // admin addresses of its parties
	mib    int      // size
	mode   string
	said   string // the last answer of a party that was not ready

	slowest        time.Duration // longest time from a full disk to an answer "not ready"
	asked, unready int           // answers while the disk stayed full, and how many were "not ready"
}

// newDisk moves a party's folder to its own file system, until the test ends.
func newDisk(t *testing.T, folder string, of *process) *disk {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	content := map[string][]byte{}
	for _, name := range files {
		content[name], err = os.ReadFile(name)
		require.NoError(t, err)
	}
	d := &disk{name: of.name, folder: folder, admins: []string{of.admin}, mib: 128, mode: "700"}
	d.mount(t)
	t.Cleanup(of.end) // before the file system is unmounted
	for name, text := range content {
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
	return d
}

// mount mounts an empty file system on the disk's folder until the test ends.
func (d *disk) mount(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("none", d.folder, "tmpfs", 0, d.sized(d.mib)); err != nil {
		relaytest.NoMount(t, err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(d.folder, syscall.MNT_DETACH)) })
}

func (d *disk) sized(mib int) string { return fmt.Sprintf("size=%dm,mode=%s", mib, d.mode) }

// fillAgain fills the disk repeatedly, at random moments. Each time it waits until a party reports that it is not
// ready, keeps the disk full for a while, frees it, and waits until all parties are ready.
func (d *disk) fillAgain(ctx context.Context, times int, pause time.Duration) error {
	for range times {
		if err := d.until(ctx, true); err != nil {
			return err
		}
		sleep(ctx, rand.N(pause))
		if err := relaytest.Fill(d.folder); err != nil {
			return err
		}
		full := time.Now()
		if err := d.until(ctx, false); err != nil {
			return err
		}
		d.slowest = max(d.slowest, time.Since(full))
		for end := time.Now().Add(between(pause/4, pause)); time.Now().Before(end); sleep(ctx, 50*time.Millisecond) {
			if d.asked++; !d.ready() {
				d.unready++
			}
		}
		if err := d.free(ctx); err != nil {
			return err
		}
	}
	return d.until(ctx, true)
}

// free empties the disk. Half of the time it first enlarges the disk and waits until all parties work again.
func (d *disk) free(ctx context.Context) error {
	enlarged := rand.IntN(2) == 0
	if enlarged {
		if err := d.resize(2 * d.mib); err != nil {
			return err
		}
		if err := d.until(ctx, true); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(d.folder, "filler")); err != nil || !enlarged {
		return err
	}
	return d.resize(d.mib)
}

func (d *disk) resize(mib int) error {
	return syscall.Mount("none", d.folder, "tmpfs", syscall.MS_REMOUNT, d.sized(mib))
}

// until waits until all parties are ready, or, if ready is false, until one is not.
func (d *disk) until(ctx context.Context, ready bool) error {
	for end := time.Now().Add(relaytest.Patience); d.ready() != ready; sleep(ctx, 20*time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: ready is not %v: %s", d.name, ready, d.said)
		}
	}
	return ctx.Err()
}

// asking asks parties whether they are ready. A party that takes longer than 5 s is not ready.
var asking = http.Client{Timeout: 5 * time.Second}

func (d *disk) ready() bool {
	for _, admin := range d.admins {
		resp, err := asking.Get("http://" + admin + "/readyz")
		if err != nil {
			d.said = err.Error()
			return false
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			d.said = string(text)
			return false
		}
	}
	return true
}
