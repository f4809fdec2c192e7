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
// acknowledged report is lost, none is delivered twice, and no client gets a token too many. A party that cannot write
// reports that it is not ready, all recover by themselves, and no key outlives its epoch. The long form does so 50
// times at each party, with relays on SQLite, with a PostgreSQL server and with an issuer. DOONA_FIGURES names the file
// for its counts.
func TestFull(t *testing.T) {
	p, times := short, 2
	parts := map[string]func(*testing.T, plan, int) any{"sqlite": fullSQLite}
	if stattest.Long { // TestFullServer and TestFullDisk fill such a disk once
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

// fullSQLite fills the disks of relays with SQLite stores, and of verifiers.
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

// fullPostgres fills the disk of the server with the stores of all relays, of which the first has two processes. A
// server that ends by itself, for example because its log has no space, is started again, as its service manager would.
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
	const clients = 8 // with 32, a busy machine's server takes longer to seal the reports than they take to come
	return w.fillAll(t, "postgres", []*disk{d}, times, clients)
}

// fillAll repeatedly fills disks, each independently, under load, and accounts for every report.
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
		require.NoError(t, p.check(), "nothing needs a restart: %s", w.logs())
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

// fillEach repeatedly fills every disk, until all are done.
func fillEach(ctx context.Context, disks []*disk, times int, pause time.Duration) error {
	failed := make([]error, len(disks))
	var filling sync.WaitGroup
	for i, d := range disks {
		filling.Go(func() { failed[i] = d.fillAgain(ctx, times, pause) })
	}
	filling.Wait()
	return errors.Join(failed...)
}

// fullFigures are the results that a run prints.
type fullFigures struct {
	figures
	Disks map[string]diskFigures `json:"disks"`
}

// diskFigures count how often a disk was full, and the answers meanwhile.
type diskFigures struct {
	Filled  int     `json:"filled"`
	Slowest float64 `json:"not_ready_after_seconds"`    // at most
	Unready float64 `json:"of_later_answers_not_ready"` // a share
}

func (d *disk) figures(times int) diskFigures {
	return diskFigures{times, d.slowest.Seconds(), float64(d.unready) / float64(d.asked)}
}

// disk is a file system of one party or of several.
type disk struct {
	name   string // its parties
	folder string
	admins []string // addresses of its parties
	mib    int      // size
	mode   string
	said   string // the last answer of a party that was not ready

	slowest        time.Duration // from a full disk to the first answer "not ready"
	asked, unready int           // answers while the disk stayed full, and those that were "not ready"
}

// newDisk moves a party's folder to a separate file system, until the test has ended.
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

// mount mounts an empty file system on the disk's folder until the test has ended.
func (d *disk) mount(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("none", d.folder, "tmpfs", 0, d.sized(d.mib)); err != nil {
		relaytest.NoMount(t, err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(d.folder, syscall.MNT_DETACH)) })
}

func (d *disk) sized(mib int) string { return fmt.Sprintf("size=%dm,mode=%s", mib, d.mode) }

// fillAgain repeatedly fills the disk at random moments, until a party on it reports that it is not ready and for a
// while longer. Then it waits until all are ready again.
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

// free empties the disk. Half of the time it first enlarges the disk until its party works again.
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

// until waits until all parties report that they are ready, or one that it is not.
func (d *disk) until(ctx context.Context, ready bool) error {
	for end := time.Now().Add(relaytest.Patience); d.ready() != ready; sleep(ctx, 20*time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: ready is not %v: %s", d.name, ready, d.said)
		}
	}
	return ctx.Err()
}

// asking asks the disks' parties whether they are ready: one that takes long to answer is not.
var asking = http.Client{Timeout: 5 * time.Second}

// ready asks all parties for /readyz.
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
