package server_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// resultsCascade sets up a relay with the batches of three past epochs of a task, and the end of none.
func resultsCascade(t *testing.T) (*relaytest.Cascade, *relaytest.Rogue) {
	t.Helper()
	c := newCascade(t, 1, 2, func(draft *task.Task) {
		draft.Epochs.Start -= uint64(5 * draft.Epochs.Length)
		draft.Epochs.Count = 5
	})
	rogue := c.StartFirst(t)
	for epoch := range uint64(3) {
		rogue.Serve(t, epoch, 0, rogue.Batch(t, epoch, 0, batchSize, onion.Lanes{sealedIn(t, c, epoch)}))
	}
	return c, rogue
}

// listed has the parts of a list of results that the tests read.
type listed struct {
	Results []struct {
		Published, Task string
		Epoch           uint64
		Estimate        *float64
		Interval        [2]float64
	}
	Next string
}

// results asks for the results of all tasks, or of those of a folder, since a moment.
func (r *running) results(t *testing.T, folder, since string) (out listed) {
	t.Helper()
	address := r.pages + folder + "/api/results"
	if since != "" {
		address += "?since=" + url.QueryEscape(since)
	}
	status, body := fetch(t, address)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	require.NotContains(t, body, "spent")
	return out
}

// waitForResults waits until there are n results after a moment.
func (r *running) waitForResults(t *testing.T, since string, n int) (out listed) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = r.results(t, "", since)
		return len(out.Results) >= n
	}, relaytest.Patience, 10*time.Millisecond)
	require.Len(t, out.Results, n)
	return out
}

// TestResultsSince: asking for results charges nothing and shows only results of complete epochs that a page has
// published. Whoever goes on from next gets each once, whether the verifier restarts or its clock is turned back.
func TestResultsSince(t *testing.T) {
	c, rogue := resultsCascade(t)
	rogue.End(0)
	rogue.End(1)
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0, 1)
	var clock movable
	cfg.Clock = clock.now
	r := serve(t, cfg)
	require.Eventually(t, func() bool {
		_, body := fetch(t, r.admin+"/status")
		var status server.Status
		require.NoError(t, json.Unmarshal([]byte(body), &status))
		return status.Tasks[0].Batches == 3 && status.Tasks[0].Progress.Ended == 2
	}, relaytest.Patience, 10*time.Millisecond)
	uncharged := ledgerOf(t, cfg)
	for range 100 {
		got := r.results(t, "", "")
		require.Empty(t, got.Results)
		require.Equal(t, "1970-01-01T00:00:00.000Z", got.Next)
	}
	require.Equal(t, uncharged, ledgerOf(t, cfg))

	folder, other := "/tasks/"+c.Bundles[0].ID.String(), "/tasks/"+c.Bundles[1].ID.String()
	shown := r.report(t, c.Open)
	ledger := func() map[string]string { // without the key file, from which each epoch's end erases a key
		files := ledgerOf(t, cfg)
		delete(files, cfg.Tasks[0].HPKEKeys)
		return files
	}
	charged := ledger()
	first := r.waitForResults(t, "", 2)
	require.Equal(t, first, r.results(t, folder, ""))
	require.Empty(t, r.results(t, other, "").Results)
	for i, one := range first.Results {
		require.EqualValues(t, i, one.Epoch)
		require.Equal(t, c.Open.ID.String(), one.Task)
		require.Equal(t, shown.Ledger.Epochs[i].Estimate, one.Estimate)
	}
	require.Less(t, first.Results[0].Published, first.Results[1].Published)
	require.Equal(t, first.Results[1].Published, first.Next)
	require.Equal(t, first.Next, r.results(t, "", first.Next).Next)
	require.Len(t, r.results(t, "", first.Results[0].Published).Results, 1)
	at, err := time.Parse(time.RFC3339Nano, first.Results[0].Published)
	require.NoError(t, err)
	require.Len(t, r.results(t, "", fmt.Sprint(at.Unix()-1)).Results, 2)
	require.Len(t, r.results(t, "", at.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)).Results, 1)

	_, text := fetch(t, r.pages+"/api/results.csv")
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	_, reportText := fetch(t, r.pages+folder+"/api/report.csv")
	reportLines, err := csv.NewReader(strings.NewReader(reportText)).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 3)
	require.Equal(t, append([]string{"published", "task"}, reportLines[0]...), lines[0])
	for i, one := range first.Results { // after the report's line of all epochs
		require.Equal(t, append([]string{one.Published, one.Task}, reportLines[i+2]...), lines[i+1])
	}
	_, marked := fetch(t, r.pages+folder+"/api/results.csv?bom=1&since="+first.Results[0].Published)
	require.Equal(t, 2, strings.Count(marked, "\n"))
	require.True(t, strings.HasPrefix(marked, "\ufeffpublished,task,epoch,"))

	clock.move(-time.Hour)
	rogue.End(2)
	second := r.waitForResults(t, first.Next, 1)
	require.EqualValues(t, 2, second.Results[0].Epoch)
	require.Greater(t, second.Next, first.Next)
	require.Empty(t, r.results(t, "", second.Next).Results)
	clock.move(-48 * time.Hour)
	require.Empty(t, r.results(t, "", second.Next).Results)
	all := r.results(t, "", "")
	require.Equal(t, append(first.Results, second.Results...), all.Results)
	require.Equal(t, charged, ledger())
	r.stop()
	r = serve(t, cfg)
	require.Equal(t, all, r.waitForResults(t, "", 3))
	r.stop()

	// The list is lost: results get new moments. It is damaged: the verifier says so.
	path := filepath.Join(cfg.Data, "published")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for want, text := range map[string]string{
		"want ascending moments": strings.Replace(string(raw), `"moment":`, `"moment":9`, 1),
		"version 9: want 1":      strings.Replace(string(raw), `"version":1`, `"version":9`, 1),
		"unexpected EOF":         string(raw[:len(raw)/2]),
		"unknown field":          strings.Replace(string(raw), `"epoch"`, `"other"`, 1),
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := server.New(cfg)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "restore it from a backup")
	}
	require.NoError(t, os.Remove(path))
	clock.move(50 * time.Hour)
	r = serve(t, cfg)
	require.Greater(t, r.waitForResults(t, second.Next, 3).Results[0].Published, second.Next)
}

// TestResultsRefuse: a moment that is no moment, or of which nothing can come, is refused with what is allowed.
func TestResultsRefuse(t *testing.T) {
	cfg, page := guarded(t)
	cfg.PasswordFile = ""
	r := serve(t, cfg)
	for _, since := range []string{"NaN", "", "-1", "1e9", "2026-11-01", "2026-11-01T00:00:00", "1969-12-31T23:59:59Z",
		"2026-13-01T00:00:00Z", "9999-01-01T00:00:00Z", "99999999999999999999", "253402300800", "0x10", "Inf",
		"\x00", strings.Repeat("1", 10000), time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)} {
		for _, folder := range []string{"", strings.TrimSuffix(page, "/")} {
			for _, name := range []string{"/api/results", "/api/results.csv"} {
				status, body := fetch(t, r.pages+folder+name+"?since="+url.QueryEscape(since))
				require.Equal(t, http.StatusBadRequest, status, since)
				require.Contains(t, body, "want one moment from 1970-01-01T00:00:00Z to 2")
				require.Less(t, len(body), 400)
			}
		}
	}
	for query, want := range map[string]int{"since=1&since=2": 400, "since=%zz": 400, "since=1;2": 400, "since=1": 200,
		"since=" + strings.Repeat("1", 10<<20): http.StatusRequestHeaderFieldsTooLarge} {
		resp, err := http.Get(r.pages + "/api/results?" + query)
		if want == http.StatusRequestHeaderFieldsTooLarge && err != nil {
			continue // the server closed the connection while the request was still being sent
		}
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode)
	}
	status, _ := fetch(t, r.pages+"/tasks/none/api/results")
	require.Equal(t, http.StatusNotFound, status)
}
