package main

import (
	"context"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
)

// TestPagesHaveHeaders: the demo's pages forbid frames and content sniffing, and refuse requests for other host names.
func TestPagesHaveHeaders(t *testing.T) {
	c := relaytest.NewMeanCascade(t)
	www := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(www, "index.html"), []byte("<!doctype html>"), 0o600))
	ended, end := context.WithCancel(t.Context())
	end()
	r := &simulatedTask{&quickstart.RunningTask{Open: c.Open, Verifier: relaytest.NewVerifier(t, c)}}
	p := &page{www: www, tasks: map[string]*pageTask{liveTask: {task: r}}, month: &monthMaker{ctx: ended}}
	serve := func(hosts *display.Hosts) http.Handler {
		p.hosts = hosts
		return p.handler("https://relay.example")
	}
	id := c.Open.ID.String()
	clitest.Pages(t, serve, "/", "/index.html", "/none", "/api/month",
		"/api/month/charts/visits", "/api/none", "/api/none/chart", "/api/"+liveTask+"/chart", "/api/"+liveTask+"/fill",
		"/api/alone", "/verifier/", "/verifier/tasks/"+id+"/", "/verifier/"+liveTask+"/", "/api/report",
		"/api/report.csv", "/page.js")
}

// TestPageHasEveryInterval: where a report has no interval, the page gets the ends of all possible answers, and the
// report stays as it is.
func TestPageHasEveryInterval(t *testing.T) {
	draft := relaytest.Draft()
	relaytest.Mean(4)(draft)
	lo, hi := draft.Input.Lo.Float64(), draft.Input.Hi.Float64()
	none := verifier.Location{Interval: [2]float64{math.Inf(-1), math.Inf(1)}}
	a := verifier.Answer{Interval: verifier.Intervals{none.Interval, {lo, lo}}}
	require.Equal(t, verifier.Intervals{{lo, hi}, {lo, lo}}, bounded(draft, a, 4).Interval)
	require.True(t, a.Interval[0].IsNone())
	d := &verifier.Distribution{Range: [2]float64{1, 5}, Quantiles: []verifier.Location{none}, Mean: none}
	got := withinRange(d)
	require.EqualValues(t, d.Range, got.Quantiles[0].Interval)
	require.EqualValues(t, d.Range, got.Mean.Interval)
	require.True(t, d.Quantiles[0].Interval.IsNone())
	require.Nil(t, withinRange(nil))
}
