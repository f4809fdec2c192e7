package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
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
