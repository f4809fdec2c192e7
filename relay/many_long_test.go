//go:build long

package relay_test

import (
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/task"
)

// manyFigures are TestManyTasks' measurements of two relays.
type manyFigures struct {
	Tasks   int        `json:"tasks"`
	Start   float64    `json:"start_seconds"`      // until both relays are ready
	Idle    [2]float64 `json:"idle_percent"`       // percent of a core, while no reports come
	RSS     [2]int     `json:"peak_rss_kb"`        //
	Through float64    `json:"seconds_through"`    // from the last report until the later relay has made every batch
	Ends    [2]float64 `json:"seconds_to_the_end"` // from the end of all epochs until every key is erased
}

// TestManyTasks runs two relays with 1000 small tasks, each relay in its own process. It measures the relays' CPU use
// while idle, the time for one batch of every task, and the time to end all epochs, which end at the same moment. The
// test takes at least 15 minutes, the length of an epoch.
func TestManyTasks(t *testing.T) {
	const tasks, clients, posters, epoch = 1000, 2, 16, 900 * time.Second
	c := relaytest.New(t, relaytest.Options{Tasks: tasks, Pull: "5s", Task: func(t *task.Task) {
		t.Batch.Size, t.Epochs.Length = clients, task.Length(epoch/time.Second)
	}})
	f := manyFigures{Tasks: tasks}
	begun := time.Now()
	relays := [2]*process{startProcess(t, c, 0), startProcess(t, c, 1)}
	f.Start = time.Since(begun).Seconds()
	var posting sync.WaitGroup
	for worker := range posters {
		posting.Go(func() {
			for i := worker; i < tasks*clients && !t.Failed(); i += posters {
				other := c.Other(t, i/clients)
				body := other.Seal(t, 0, uint64(i))
				if err := postUntilTaken(t.Context(), other, body, relaytest.Network(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	posting.Wait()
	require.False(t, t.Failed())
	begun = time.Now()
	all := func(hop int, want func(state string, batches uint64) bool) func() bool {
		return func() bool {
			for _, s := range c.Statuses(t, hop) {
				if len(s.Epochs) == 0 || !want(s.Epochs[0].State, s.Epochs[0].Batches) {
					return false
				}
			}
			return true
		}
	}
	made := func(_ string, batches uint64) bool { return batches == 1 }
	require.Eventually(t, all(1, made), 10*time.Minute, time.Second)
	f.Through = time.Since(begun).Seconds()
	f.Idle = idleShare(t, relays)
	t.Logf("until the end: %+v", f)
	end := time.Unix(int64(c.Open.Epochs.End(0)), 0)
	require.True(t, time.Now().Before(end), "this machine is too slow: the epoch is over")
	erased := func(state string, _ uint64) bool { return state == "erased" }
	for hop := range relays {
		require.Eventually(t, all(hop, erased), epoch+10*time.Minute, time.Second)
		f.Ends[hop] = time.Since(end).Seconds()
	}
	for hop, p := range relays {
		f.RSS[hop] = peakRSS(t, p)
	}
	text, err := json.MarshalIndent(f, "", " ")
	require.NoError(t, err)
	t.Logf("%s", text)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	for hop := range relays {
		require.LessOrEqual(t, f.Idle[hop], 5., "percent of a core, hop %d", hop)
		require.LessOrEqual(t, f.RSS[hop], 200<<10, "kB, hop %d", hop)
		require.LessOrEqual(t, f.Ends[hop], 60., "seconds, hop %d", hop)
	}
}

// idleShare returns how many percent of a core each of two idle relays uses.
func idleShare(t *testing.T, relays [2]*process) (percent [2]float64) {
	t.Helper()
	const while = 30 * time.Second
	time.Sleep(5 * time.Second)
	var before [2]float64
	for hop, p := range relays {
		before[hop] = cpuSeconds(t, p)
	}
	time.Sleep(while)
	for hop, p := range relays {
		percent[hop] = 100 * (cpuSeconds(t, p) - before[hop]) / while.Seconds()
	}
	return percent
}
