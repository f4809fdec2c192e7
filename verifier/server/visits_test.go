package server_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/task"
)

// cappedFirst sets up relays for two tasks of the same epochs, of which the first has a cap.
func cappedFirst(t *testing.T) *relaytest.Cascade {
	t.Helper()
	return relaytest.New(t, relaytest.Options{Hops: 2, Tasks: 2, Task: relaytest.Mean(batchSize),
		Each: func(i int, draft *task.Task) {
			if i == 0 {
				draft.Epochs.Cap = task.Cap{Reports: 1, Window: 2}
			}
		}})
}

// TestVisitsThatACapLeavesOut: a task with a cap says what share of the visits it counts, by the reports of a task
// without one.
func TestVisitsThatACapLeavesOut(t *testing.T) {
	c := cappedFirst(t)
	c.StartAll(t)
	play(t, c, 1, 0, 2)
	for n := range batchSize {
		person, err := shufflerclient.Connect(t.Context(), shufflerclient.Options{Task: c.TaskURL(0), Owner: c.Owner,
			Budget: shufflerclient.Budget{Epsilon: 10, Delta: 1e-3, Days: 1},
			Ledger: shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger.json"))})
		require.NoError(t, err)
		r, err := person.Report(0, []float64{7})
		require.NoError(t, err)
		header := http.Header{"X-Forwarded-For": {relaytest.Network(n)}}
		require.NoError(t, person.WithHeader(header).Submit(t.Context(), r))
	}
	cfg := config(t, c, t.TempDir(), 0, 1)
	cfg.Tasks[0].Visits = cfg.Tasks[1].File
	r := serve(t, cfg)
	r.wait(t, c.Bundles[0], batches(1))
	r.wait(t, c.Bundles[1], batches(2))
	_, body := fetch(t, r.pages+"/tasks/"+c.Bundles[0].ID.String()+"/api/report")
	var out struct {
		Cap           string
		Counted       float64
		Visits        uint64
		CountedVisits uint64 `json:"counted_visits"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	require.Equal(t, "1/2", out.Cap)
	require.Equal(t, .5, out.Counted)
	require.EqualValues(t, 2*batchSize, out.Visits)
	require.EqualValues(t, batchSize, out.CountedVisits)
	_, page := fetch(t, r.pages+"/tasks/"+c.Bundles[0].ID.String()+"/")
	require.Contains(t, page, "of visits are covered: 10 of 20")
	_, page = fetch(t, r.pages+"/tasks/"+c.Bundles[1].ID.String()+"/")
	require.NotContains(t, page, "of visits")

	for wrong, change := range map[string]func(*server.Config){
		"in tasks":             func(cfg *server.Config) { cfg.Tasks[0].Visits = "other.bundle" },
		"a task without a cap": func(cfg *server.Config) { cfg.Tasks[0].Visits = cfg.Tasks[0].File },
		"counts every visit":   func(cfg *server.Config) { cfg.Tasks[1].Visits = cfg.Tasks[0].File },
	} {
		cfg := config(t, c, t.TempDir(), 0, 1)
		change(&cfg)
		_, err := server.New(cfg)
		require.ErrorContains(t, err, "invalid visits")
		require.True(t, strings.Contains(err.Error(), wrong), err)
	}
}
