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

	"github.com/doona-dp/doona/internal/relaytest"
)

// TestFull fills the disk of each party at random moments, under load, and empties or enlarges it again: no
// acknowledged report is lost, none is delivered twice, who cannot write says that it is not ready, all go on by
// themselves, and no key outlives its epoch. DOONA_FULL=1 does so 50 times at each party; DOONA_FIGURES names the file
// for what it counted.
func TestFull(t *testing.T) {
	p, times := short, 2
	if os.Getenv("DOONA_FULL") != "" {
		p, times = full, 50
	}
	w := newWorld(t, p, 2, nil)
	disks := []*disk{newDisk(t, w.folder(0), w.relays[0]), newDisk(t, w.folder(1), w.relays[1])}
	for i, v := range w.verifiers {
		require.NoError(t, os.MkdirAll(w.data(i), 0o700))
		admin := relaytest.FreeAddress(t)
		v.args = append(v.args, "--admin", admin)
		disks = append(disks, newDisk(t, w.data(i), v))
		disks[len(disks)-1].admin = admin
	}
	keys := w.private(t)
	for _, p := range w.all() {
		require.NoError(t, p.start())
	}
	load := startLoad(t.Context(), w, 32, 200*time.Millisecond)
	failed := make([]error, len(disks))
	var filling sync.WaitGroup
	for i, d := range disks {
		filling.Go(func() { failed[i] = d.fillAgain(t.Context(), times, p.pause) })
	}
	filling.Wait()
	require.NoError(t, errors.Join(failed...), "%s", w.logs())
	all, last := load.end(t)
	for _, p := range w.all() {
		require.NoError(t, p.check(), "nothing needs a restart: %s", w.logs())
	}
	w.settle(t, last)

	f := &fullFigures{figures: figures{Store: "sqlite", Hops: 2, Epochs: last + 1, Unanswered: load.attempts.Load()},
		Filled: map[string]int{}, Unready: map[string]int{}}
	w.account(t, all, last, &f.figures)
	w.checkErased(t, keys, last)
	require.NotZero(t, f.Delivered)
	for _, d := range disks {
		f.Filled[d.of.name], f.Unready[d.of.name] = times, d.unready
		require.True(t, d.unready > 0 || times < 50, "%s never said so", d.of.name)
	}
	out, err := json.MarshalIndent(f, "", " ")
	require.NoError(t, err)
	t.Logf("%s", out)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

// fullFigures is what a run prints: how often the disk of each party was full, and how often it said so.
type fullFigures struct {
	figures
	Filled  map[string]int `json:"filled"`
	Unready map[string]int `json:"said_not_ready"`
}

// diskSize is that of a party's file system, in MiB.
const diskSize = 24

// disk is a file system of a party's own.
type disk struct {
	folder  string
	of      *process
	admin   string
	unready int // times at which its party said that it is not ready
}

// newDisk moves a folder to a file system of its own, until the test has ended.
func newDisk(t *testing.T, folder string, of *process) *disk {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	content := map[string][]byte{}
	for _, name := range files {
		content[name], err = os.ReadFile(name)
		require.NoError(t, err)
	}
	if err := syscall.Mount("none", folder, "tmpfs", 0, sized(diskSize)); err != nil {
		if os.Getenv("DOONA_FULL") != "" {
			t.Fatalf("couldn't mount: %v", err)
		}
		t.Skipf("a file system of its own takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		of.end()
		require.NoError(t, syscall.Unmount(folder, syscall.MNT_DETACH))
	})
	for name, text := range content {
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
	return &disk{folder: folder, of: of, admin: of.admin}
}

func sized(mib int) string { return fmt.Sprintf("size=%dm,mode=700", mib) }

// fillAgain fills the disk again and again at random moments, for a while each, and waits until its party is ready
// again.
func (d *disk) fillAgain(ctx context.Context, times int, pause time.Duration) error {
	for range times {
		if err := d.until(ctx, true); err != nil {
			return err
		}
		sleep(ctx, rand.N(pause))
		if err := d.fill(); err != nil {
			return err
		}
		said := false
		for end := time.Now().Add(between(pause/4, pause)); time.Now().Before(end); sleep(ctx, 50*time.Millisecond) {
			said = said || !d.ready()
		}
		if said {
			d.unready++
		}
		if err := d.free(ctx); err != nil {
			return err
		}
	}
	return d.until(ctx, true)
}

// fill takes all that is left.
func (d *disk) fill() error {
	f, err := os.Create(filepath.Join(d.folder, "filler"))
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

// free empties the disk, half of the time after its party has found it enlarged.
func (d *disk) free(ctx context.Context) error {
	enlarged := rand.IntN(2) == 0
	if enlarged {
		if err := d.resize(2 * diskSize); err != nil {
			return err
		}
		if err := d.until(ctx, true); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(d.folder, "filler")); err != nil || !enlarged {
		return err
	}
	return d.resize(diskSize)
}

func (d *disk) resize(mib int) error {
	return syscall.Mount("none", d.folder, "tmpfs", syscall.MS_REMOUNT, sized(mib))
}

// until waits until the party says whether it is ready.
func (d *disk) until(ctx context.Context, ready bool) error {
	for end := time.Now().Add(relaytest.Patience); d.ready() != ready; sleep(ctx, 20*time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: ready is not %v", d.of.name, ready)
		}
	}
	return ctx.Err()
}

// ready asks for /readyz.
func (d *disk) ready() bool {
	resp, err := http.Get("http://" + d.admin + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusNoContent
}
