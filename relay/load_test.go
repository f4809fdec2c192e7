package relay_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// loadFigures are TestLoad's measurements.
type loadFigures struct {
	Capacity    float64        `json:"capacity_per_second"` // with 128 connections, each waiting for its answer
	Offered     float64        `json:"offered_per_second"`
	Seconds     float64        `json:"overload_seconds"`
	Sent        int            `json:"sent"`
	Accepted    int            `json:"accepted"`
	Goodput     float64        `json:"accepted_per_second"`
	Refused     map[string]int `json:"refused"`
	Late        int            `json:"late"` // due, but not sent, because every connection was in use
	P50         float64        `json:"accepted_p50_ms"`
	P99         float64        `json:"accepted_p99_ms"`
	IdleRSS     int            `json:"idle_peak_rss_kb"`
	CapacityRSS int            `json:"capacity_peak_rss_kb"`
	OverloadRSS int            `json:"overload_peak_rss_kb"`
	BoundRSS    int            `json:"bound_rss_kb"`
	CalmCPU     float64        `json:"capacity_cpu_us_per_accepted"` // CPU time of the relay, including sealing
	StormCPU    float64        `json:"overload_cpu_us_per_accepted"` // CPU time of the relay, including its refusals
	CPUSeconds  float64        `json:"relay_cpu_seconds"`
	Verified    int            `json:"verified"`
	Pinned      bool           `json:"pinned"` // relay on processor 0, generator on the others
}

// The configuration of TestLoad. A report in flight reserves 16 KiB and four times its length, so maxMemory has space
// for the 1,024 reports that may be in flight.
const (
	loadConnections  = 2000
	maxMemory        = 24 << 20
	connectionMemory = 20 << 10 // bytes of buffers and stack per open connection
	sqliteCache      = 16 << 20
)

// greedy returns the network from which a quarter of the reports come, far more than a fair share. It changes with the
// value, before the network's quota is used up.
func greedy(value int) string { return fmt.Sprintf("203.0.%d.1", 100+value/240_000) }

// TestLoad measures a relay's capacity, then sends four times as many reports per second, a quarter of them from one
// network. The relay must stay below its memory bound. Exactly the acknowledged reports must come out of the sealed
// batches. In the long form the overload takes 60 s, and relay and generator have their own processors.
func TestLoad(t *testing.T) {
	warm, overload := time.Second/2, 2*time.Second
	full := stattest.Long
	if full {
		warm, overload = 10*time.Second, time.Minute
	}
	const n = 1000
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Task: func(t *task.Task) { t.Batch.Size, t.Clients.Quota = n, 65535 }})
	limitMemory(t, c)
	p := startProcess(t, c, 0)
	figures := loadFigures{IdleRSS: peakRSS(t, p), Pinned: full && pin(t, p)}
	target, err := url.Parse(c.ReportsURL(0))
	require.NoError(t, err)

	pool := sealPool(t, c, 0, int(10_000*warm.Seconds()))
	begun := cpuSeconds(t, p)
	calm := openloop.Run(t.Context(), openloop.Options{URL: target, Duration: warm, Connections: 128},
		openloop.Pool(pool))
	figures.Capacity, figures.CapacityRSS = float64(calm.Accepted)/calm.Seconds, peakRSS(t, p)
	figures.CalmCPU = 1e6 * (cpuSeconds(t, p) - begun) / float64(calm.Accepted)
	require.Empty(t, calm.Refused["overloaded"])

	figures.Offered = 4 * figures.Capacity
	pool = append(pool, sealPool(t, c, len(pool), int(1.5*figures.Capacity*overload.Seconds()))...)
	begun = cpuSeconds(t, p)
	storm := openloop.Run(t.Context(),
		openloop.Options{URL: target, Rate: figures.Offered, Duration: overload, Connections: loadConnections},
		openloop.Pool(pool))
	figures.Seconds, figures.Sent, figures.Accepted, figures.Refused, figures.Late = storm.Seconds, storm.Offered,
		storm.Accepted, storm.Refused, storm.Late
	figures.Goodput, figures.P50, figures.P99 = float64(storm.Accepted)/storm.Seconds, storm.Quantile(0.5),
		storm.Quantile(0.99)
	figures.OverloadRSS = peakRSS(t, p)
	require.NotZero(t, storm.Accepted)
	figures.StormCPU = 1e6 * (cpuSeconds(t, p) - begun) / float64(storm.Accepted)

	// The bound is an idle relay's memory, its database's cache, and twice the memory of reports in flight, of
	// connections and of the names of reports: Go lets the heap double before it collects garbage. Package service
	// allows some more.
	names := int((calm.Accepted + storm.Accepted) * handover.KnownMemory)
	figures.BoundRSS = figures.IdleRSS +
		(sqliteCache+service.Garbage+2*(maxMemory+loadConnections*connectionMemory+names))>>10
	require.LessOrEqual(t, figures.OverloadRSS, figures.BoundRSS)
	for name := range storm.Refused {
		require.Contains(t, []string{"overloaded", "slow-down", "connection"}, name)
	}
	if full {
		require.NotZero(t, storm.Refused["overloaded"]+storm.Refused["slow-down"])
	}
	pool = append(pool, sealPool(t, c, len(pool), n)...) // enough to fill the last batch
	fillUp(t, target, pool, n)
	figures.verify(t, c, pool, n)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())
	figures.CPUSeconds = (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
	out, err := json.MarshalIndent(&figures, "", " ")
	require.NoError(t, err)
	t.Logf("%s", out)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

func limitMemory(t *testing.T, c *relaytest.Cascade) {
	t.Helper()
	config, err := os.OpenFile(c.RelayConfig(1), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer config.Close()
	_, err = fmt.Fprintf(config, "max_memory: %dMiB\n", maxMemory>>20)
	require.NoError(t, err)
}

// sealPool seals reports of the n values from, from+1, …
func sealPool(t *testing.T, c *relaytest.Cascade, from, n int) []*openloop.LoadReport {
	t.Helper()
	pool := make([]*openloop.LoadReport, n)
	for i, body := range sealFrom(t, c, from, n) {
		pool[i] = &openloop.LoadReport{Body: body, Client: relaytest.Network(from + i)}
		if at := from + i; at%4 == 3 {
			pool[i].Client = greedy(at)
		}
	}
	return pool
}

// fillUp posts the reports whose answer was lost again, at low load, and enough unsent reports to fill the last batch.
// Afterwards all acknowledged reports are sealed.
func fillUp(t *testing.T, target *url.URL, pool []*openloop.LoadReport, n int) {
	t.Helper()
	calmly := func(reports []*openloop.LoadReport) {
		openloop.Run(t.Context(), openloop.Options{URL: target, Duration: 10 * time.Minute, Connections: 8},
			openloop.Pool(reports))
		for _, r := range reports {
			require.Equal(t, openloop.Taken, r.Fate)
		}
	}
	var unknown, waiting []*openloop.LoadReport
	accepted := 0
	for _, r := range pool {
		switch r.Fate {
		case openloop.Unknown:
			r.Fate = openloop.Waiting
			unknown = append(unknown, r)
		case openloop.Waiting:
			waiting = append(waiting, r)
		case openloop.Taken:
			accepted++
		}
	}
	if len(unknown) > 0 {
		calmly(unknown)
	}
	if missing := (n - (accepted+len(unknown))%n) % n; missing > 0 {
		calmly(waiting[:missing])
	}
}

// verify requires that every acknowledged report comes out of the sealed batches exactly once, and no other report.
func (f *loadFigures) verify(t *testing.T, c *relaytest.Cascade, pool []*openloop.LoadReport, n int) {
	t.Helper()
	out := make([]int, len(pool))
	accepted := 0
	for _, r := range pool {
		if r.Fate == openloop.Taken {
			accepted++
		}
	}
	for seq := range uint64(accepted / n) {
		batch, chain := c.Pull(t, 0, seq)
		require.EqualValues(t, n, chain[0].Submissions)
		for _, value := range c.Values(t, 0, batch)[0] {
			out[value]++
		}
		require.NoError(t, c.Verifier.Confirm(t.Context(), c.Open, 0, 0, seq, batch.Manifest))
	}
	_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, uint64(accepted/n))
	require.ErrorIs(t, err, handover.ErrNotSealed, "no further batch is sealed")
	for i, r := range pool {
		want := 0
		if r.Fate == openloop.Taken {
			want = 1
		}
		require.Equal(t, want, out[i], "report %d", i)
	}
	f.Verified = accepted
}

// peakRSS returns the most memory that a process has used so far, in kB.
func peakRSS(t *testing.T, p *process) int {
	t.Helper()
	kb, err := openloop.PeakRSS(p.cmd.Process.Pid)
	require.NoError(t, err)
	return kb
}

// cpuSeconds returns the user and system CPU time of a process so far.
func cpuSeconds(t *testing.T, p *process) float64 {
	t.Helper()
	seconds, err := openloop.CPUSeconds(p.cmd.Process.Pid)
	require.NoError(t, err)
	return seconds
}

// pin runs the relay on processor 0 and this process on the others. It reports false if there is only one processor.
func pin(t *testing.T, p *process) bool {
	t.Helper()
	if runtime.NumCPU() < 2 {
		return false
	}
	for pid, processors := range map[int]string{p.cmd.Process.Pid: "0",
		os.Getpid(): fmt.Sprintf("1-%d", runtime.NumCPU()-1)} {
		out, err := exec.Command("taskset", "-acp", processors, fmt.Sprint(pid)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return true
}
