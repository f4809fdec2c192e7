package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestPagesHaveHeaders walks what the demo and 'doona dev' serve: no frame, no guessed type, and no other name that
// resolves here.
func TestPagesHaveHeaders(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
	keys, err := keyfile.LoadHPKE(c.VerifierKeys("task0"))
	require.NoError(t, err)
	v, err := verifier.New(c.Open, keys)
	require.NoError(t, err)
	www := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(www, "index.html"), []byte("<!doctype html>"), 0o600))
	var log bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&log)
	hosts := pageHosts(cmd, "127.0.0.1:0", []string{"demo.example"})
	ended, end := context.WithCancel(t.Context())
	end()
	r := &road{open: c.Open, verifier: v}
	p := &page{www: www, tasks: map[string]*crowd{liveTask: {road: r}}, month: &monthMaker{ctx: ended}, hosts: hosts}
	id := c.Open.ID.String()
	for name, handler := range map[string]http.Handler{"demo": p.handler("https://relay.example"),
		"dev": devHandler(hosts, r)} {
		answer := func(method, host, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(method, "http://"+host+path, strings.NewReader("{")))
			what := name + ": " + method + " " + path
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'", what)
			require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"), what)
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), what)
			require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"), what)
			require.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"), what)
			return w
		}
		for _, path := range []string{"/", "/index.html", "/none", "/api/month", "/api/month/charts/visits", "/api/none",
			"/api/none/chart", "/api/" + liveTask + "/chart", "/api/" + liveTask + "/fill", "/api/alone", "/verifier/",
			"/verifier/tasks/" + id + "/", "/verifier/" + liveTask + "/", "/api/report", "/api/report.csv", "/page.js"} {
			answer("GET", "127.0.0.1:7280", path)
			answer("PUT", "localhost", path)
		}
		require.Equal(t, http.StatusOK, answer("GET", "demo.example", "/").Code)
		w := answer("GET", "evil.example:7280", "/")
		require.Equal(t, http.StatusMisdirectedRequest, w.Code)
		require.Contains(t, w.Body.String(), "setting --hosts")
	}
	require.Equal(t, 1, strings.Count(log.String(), "evil.example"), log.String())
}
