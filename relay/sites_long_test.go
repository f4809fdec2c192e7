//go:build long && linux

package relay_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/task"
)

// siteFigures are TestManySites' measurements, of the first relay and of the second.
type siteFigures struct {
	Sites  int        `json:"sites"` // approved owners
	Tasks  int        `json:"tasks"`
	Ready  [2]float64 `json:"ready_seconds"` // from the start of the process until /readyz answers 204
	Idle   [2]float64 `json:"idle_percent"`  // percent of a core without reports, with a scrape each 15 s
	RSS    [2]int     `json:"rss_kb"`        // after the idle minute
	Peak   [2]int     `json:"peak_rss_kb"`
	Series [2]int     `json:"series"` // on /metrics, with those of Go and the process
	Scrape [2]float64 `json:"scrape_seconds"`
	Add    float64    `json:"add_seconds"` // until the relays serve all tasks, in parallel for different owners
}

// tasksPerSite is the number of tasks of a site: the count of days, the four web vitals, two shares, and one to spare.
const tasksPerSite = 8

// TestManySites runs two relays that have approved an owner for each of 100 sites. Each owner has 8 tasks of 30 daily
// epochs, and every task has mixed a batch in its open epoch. The test restarts the relays and then measures them.
// DOONA_SITES=1000 measures another number of sites, without limits.
func TestManySites(t *testing.T) {
	sites, err := strconv.Atoi(cmp.Or(os.Getenv("DOONA_SITES"), "100"))
	require.NoError(t, err)
	c := relaytest.New(t, relaytest.Options{Pull: "5s", Task: func(t *task.Task) {
		t.Batch.Size, t.Epochs.Length, t.Epochs.Count = 2, 86400, 30
	}})
	owners := approveSites(t, c, sites)
	relays := [2]*process{startProcess(t, c, 0), startProcess(t, c, 1)}
	f := siteFigures{Sites: sites, Tasks: sites * tasksPerSite}
	begun := time.Now()
	all := beginAll(t, owners)
	f.Add = time.Since(begun).Seconds()
	mixBatches(t, c, all)
	for hop, p := range relays {
		f.Ready[hop] = restartSeconds(t, p)
	}
	f.Idle = idleMinute(t, relays)
	for hop, p := range relays {
		begun := time.Now()
		f.Series[hop] = countSeries(t, p)
		f.Scrape[hop] = time.Since(begun).Seconds()
		f.RSS[hop], f.Peak[hop] = residentMemory(t, p), peakRSS(t, p)
	}
	text, err := json.MarshalIndent(f, "", " ")
	require.NoError(t, err)
	t.Logf("%s", text)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	if sites > 100 {
		return
	}
	for hop := range relays {
		require.LessOrEqual(t, f.Idle[hop], 3., "percent of a core, hop %d", hop)
		require.LessOrEqual(t, f.RSS[hop], 150_000, "kB, hop %d", hop)
		require.LessOrEqual(t, f.Series[hop], 3000, "series, hop %d", hop)
		require.LessOrEqual(t, f.Ready[hop], 2., "seconds, hop %d", hop)
	}
}

// approveSites adds an approved owner for each site to the configurations of both relays. It returns a cascade of each
// owner.
func approveSites(t *testing.T, c *relaytest.Cascade, sites int) (owners []*relaytest.Cascade) {
	t.Helper()
	var text strings.Builder
	text.WriteString("owners:\n")
	for i := range sites {
		owner := c.OfOwner(t)
		owners = append(owners, owner)
		fmt.Fprintf(&text, "  - {owner: %q, folder: site%d, tasks: %d}\n", owner.Owner, i, tasksPerSite)
	}
	for hop := range c.Open.Relays {
		appendTo(t, c.RelayConfig(hop+1), text.String())
	}
	return owners
}

// beginAll hands the tasks of all owners to the relays, several owners at a time. It returns a cascade of each task.
func beginAll(t *testing.T, owners []*relaytest.Cascade) []*relaytest.Cascade {
	t.Helper()
	all := make([]*relaytest.Cascade, len(owners)*tasksPerSite)
	inParallel(t, len(owners), func(i int) {
		for k := range tasksPerSite {
			all[i*tasksPerSite+k] = begin(t, owners[i], owners[i].Named(fmt.Sprintf("task %d", k)))
		}
	})
	return all
}

// inParallel calls do with 0 to n-1, up to 16 calls at a time.
func inParallel(t *testing.T, n int, do func(i int)) {
	t.Helper()
	const workers = 16
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for i := worker; i < n && !t.Failed(); i += workers {
				do(i)
			}
		})
	}
	working.Wait()
	require.False(t, t.Failed())
}

// mixBatches posts a batch to each task and waits until the second relay has mixed all batches.
func mixBatches(t *testing.T, c *relaytest.Cascade, all []*relaytest.Cascade) {
	t.Helper()
	inParallel(t, len(all), func(i int) {
		for k := range all[i].Open.Batch.Size {
			body := all[i].Seal(t, 0, k)
			if err := postUntilTaken(t.Context(), all[i], body, relaytest.Network(int(k))); err != nil {
				t.Error(err)
			}
		}
	})
	require.Eventually(t, func() bool {
		mixed := 0
		for _, s := range c.Statuses(t, 1) {
			if len(s.Epochs) > 0 && s.Epochs[0].Batches == 1 {
				mixed++
			}
		}
		return mixed == len(all)
	}, 10*time.Minute, time.Second)
}

// restartSeconds restarts a relay three times. It returns the shortest time from the start of the process until /readyz
// answers 204: other programs on this machine can only lengthen it.
func restartSeconds(t *testing.T, p *process) float64 {
	t.Helper()
	shortest := time.Hour
	for range 3 {
		p.stop(t)
		begun := time.Now()
		p.start(t)
		shortest = min(shortest, time.Since(begun))
		resp, err := http.Get("http://" + p.admin + "/readyz")
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
	}
	return shortest.Seconds()
}

// idleMinute returns how many percent of a core each of two idle relays uses, while Prometheus asks for the metrics
// every 15 seconds.
func idleMinute(t *testing.T, relays [2]*process) (percent [2]float64) {
	t.Helper()
	time.Sleep(20 * time.Second) // A relay has more to do in the first seconds after its start.
	var before [2]float64
	for hop, p := range relays {
		before[hop] = cpuSeconds(t, p)
	}
	begun := time.Now()
	for range 4 {
		for _, p := range relays {
			countSeries(t, p)
		}
		time.Sleep(15 * time.Second)
	}
	for hop, p := range relays {
		percent[hop] = 100 * (cpuSeconds(t, p) - before[hop]) / time.Since(begun).Seconds()
	}
	return percent
}

// countSeries returns the number of series in a relay's metrics.
func countSeries(t *testing.T, p *process) int {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return len(regexp.MustCompile(`(?m)^[a-z].* \S+$`).FindAll(text, -1))
}

// residentMemory returns the memory that a process uses now, in kB.
func residentMemory(t *testing.T, p *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(status)
	require.NotNil(t, m)
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return kb
}
