package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// TestLargeBatch: neither relay can permute the batch in memory. Every slot must come out once, with either store, and
// no scratch file may remain.
func TestLargeBatch(t *testing.T) {
	const clients, perLane = 20, 12
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		o.Task = func(t *task.Task) { t.Batch.Size, t.Slots.Lanes, t.Slots.PerLane = clients, 2, perLane }
		c := relaytest.New(t, o)
		for hop := range 2 {
			r, err := relay.New(c.Config(t, hop))
			require.NoError(t, err)
			relay.SpillAt(r, 5000)
			c.Serve(t, r, c.Config(t, hop).Admin)
		}
		for i, body := range sealFrom(t, c, 0, clients) {
			require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)))
		}
		batch, chain := c.Pull(t, 0, 0)
		for lane := range 2 {
			require.EqualValues(t, clients*perLane, chain[1].Lanes[lane].Out)
			require.ElementsMatch(t, span(0, clients), c.Values(t, 0, batch)[lane])
		}
		for hop := range 2 {
			left, err := filepath.Glob(filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1), ".shuffle*"))
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})
}

// TestNoScratch: a relay that cannot write to its scratch folder acknowledges reports and never makes a large batch of
// them. It must not start with one, as check-config says. If the folder goes away later, it is not ready meanwhile, and
// its log omits repetitions.
func TestNoScratch(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Postgres: true, Task: func(t *task.Task) {
		t.Batch.Size, t.Slots.Lanes, t.Slots.PerLane = 20, 2, 12
	}})
	away := filepath.Join(t.TempDir(), "away")
	for _, folder := range []string{away, "/proc"} { // /proc is there, and nobody can write to it
		for _, command := range []string{"check-config", "serve"} {
			cmd := exec.Command(executable, command, "--config", c.RelayConfig(1))
			cmd.Env = append(os.Environ(), "TMPDIR="+folder)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, command)
			require.Contains(t, string(out), "invalid scratch "+folder+": want a folder that this user can write to")
		}
	}

	var log buffer
	cfg := c.Config(t, 0)
	cfg.Scratch, cfg.Log = away, slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, os.Mkdir(away, 0o700))
	r, err := relay.New(cfg)
	require.NoError(t, err)
	relay.SpillAt(r, 5000)
	c.Serve(t, r, cfg.Admin)
	require.NoError(t, os.Remove(away))
	code, answer := getAdmin(t, c, 0, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, answer, "invalid scratch")
	for i, body := range sealFrom(t, c, 0, 20) {
		require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(i)))
	}
	failed := func() int { return strings.Count(log.String(), "couldn't create the shuffle's file in "+away) }
	requireSoon(t, func() bool { return failed() > 0 })
	time.Sleep(2 * time.Second) // some attempts more
	require.LessOrEqual(t, failed(), 2)
	require.NoError(t, os.Mkdir(away, 0o700))
	c.WaitReady(t, cfg.Admin)
	requireSoon(t, func() bool { return c.Status(t, 0).Epochs[0].Batches == 1 })
}

// sizeFigures are TestSize's measurements of one batch that passes two relays.
type sizeFigures struct {
	Slots       int     `json:"slots"`
	Seconds     float64 `json:"seconds"` // from the last report to the batch at the last relay
	RSS         [2]int  `json:"peak_rss_kb"`
	MicrosCPU   [2]int  `json:"cpu_us_per_slot"`      // CPU time of each relay, including ingress
	Disk        [2]int  `json:"store_bytes_per_slot"` // after the batch, without scratch files
	WorstIngest int     `json:"worst_report_ms"`      // slowest of the reports sent meanwhile
	Reports     int     `json:"reports_meanwhile"`
}

// TestSize measures batches of several sizes through two relays in their own processes: memory, CPU time and disk per
// slot, and the delay of reports meanwhile. No relay may use more than 512 MiB. In the long form the sizes are 10⁵ and
// 10⁶ slots; the environment variable DOONA_SIZE adds one.
func TestSize(t *testing.T) {
	sizes := []int{2000}
	if stattest.Long {
		sizes = []int{100_000, 1_000_000}
	}
	if text := os.Getenv("DOONA_SIZE"); text != "" {
		var more int
		_, err := fmt.Sscan(text, &more)
		require.NoError(t, err)
		sizes = append(sizes, more)
	}
	var all []sizeFigures
	for _, slots := range sizes {
		all = append(all, measureSize(t, slots))
		out, err := json.MarshalIndent(all, "", " ")
		require.NoError(t, err)
		t.Logf("%s", out)
		if path := os.Getenv("DOONA_FIGURES"); path != "" {
			require.NoError(t, os.WriteFile(path, out, 0o644))
		}
	}
	for _, f := range all {
		for hop := range 2 {
			require.LessOrEqual(t, f.RSS[hop], 512<<10, "%d slots, hop %d", f.Slots, hop)
		}
	}
}

// measureSize sends a batch through two relays, with 1000 slots per report.
func measureSize(t *testing.T, slots int) sizeFigures {
	t.Helper()
	const perLane = 1000
	n := slots / perLane
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) {
		t.Batch.Size, t.Slots.PerLane = uint64(n), perLane
	}})
	relays := [2]*process{startProcess(t, c, 0), startProcess(t, c, 1)}
	var begun [2]float64
	for hop, p := range relays {
		begun[hop] = cpuSeconds(t, p)
	}
	var first []byte
	const group = 50
	for from := 0; from < n; from += group {
		for i, body := range sealFrom(t, c, from, min(group, n-from)) {
			require.NoError(t, c.Post(t.Context(), 0, body, relaytest.Network(from+i)))
			if from+i == 0 {
				first = body
			}
		}
	}
	out := sizeFigures{Slots: slots}
	full := time.Now()
	meanwhile, stop := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	reporting.Go(func() { out.report(meanwhile, t, c, first) })
	require.Eventually(t, func() bool {
		e := c.Status(t, 1).Epochs
		return len(e) == 1 && e[0].Batches == 1
	}, time.Hour, 20*time.Millisecond)
	out.Seconds = time.Since(full).Seconds()
	stop()
	reporting.Wait()
	waitConfirmed(t, c, 0, 1)
	for hop, p := range relays {
		out.RSS[hop] = peakRSS(t, p)
		out.Disk[hop] = int(storeBytes(t, c, hop)) / slots
		out.MicrosCPU[hop] = int(1e6 * (cpuSeconds(t, p) - begun[hop]) / float64(slots))
	}
	got := 0
	request := handover.Request{Open: c.Open, From: 1, RecordManifest: func(*onion.SignedManifest) error { return nil }}
	_, err := c.Verifier.PullEach(t.Context(), request, func(_ int, chunk [][]byte) error {
		got += len(chunk)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, slots, got)
	for _, p := range relays { // otherwise they poll each other while the next size is measured
		require.NoError(t, p.cmd.Process.Kill())
	}
	return out
}

// storeBytes returns the size of a relay's store files, which never shrink.
func storeBytes(t *testing.T, c *relaytest.Cascade, hop int) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1), "relay.db*"))
	require.NoError(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		n += info.Size()
	}
	return n
}

// report repeats a stored report until ctx ends. Each repetition needs the same transaction as a new report.
func (f *sizeFigures) report(ctx context.Context, t *testing.T, c *relaytest.Cascade, body []byte) {
	for ctx.Err() == nil {
		begun := time.Now()
		if err := c.Post(ctx, 0, body, relaytest.Network(0)); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		f.WorstIngest = max(f.WorstIngest, int(time.Since(begun).Milliseconds()))
		f.Reports++
		time.Sleep(20 * time.Millisecond)
	}
}
