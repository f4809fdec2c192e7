package clitest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
)

// Pages checks the pages of a command that serves on 127.0.0.1 with --hosts demo.example. They must forbid frames and
// content sniffing, and refuse other host names. The log must name such a host once.
func Pages(t *testing.T, serve func(hosts *display.Hosts) http.Handler, paths ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&log)
	handler := serve(cli.HostsFlag{"demo.example"}.Hosts(cmd, "127.0.0.1:0"))
	answer := func(method, host, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "http://"+host+path, strings.NewReader("{")))
		what := method + " " + path
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'", what)
		require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"), what)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), what)
		require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"), what)
		require.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"), what)
		return w
	}
	for _, path := range paths {
		answer("GET", "127.0.0.1:7280", path)
		answer("PUT", "localhost", path)
	}
	require.Equal(t, http.StatusOK, answer("GET", "demo.example", "/").Code)
	w := answer("GET", "evil.example:7280", "/")
	require.Equal(t, http.StatusMisdirectedRequest, w.Code)
	require.Contains(t, w.Body.String(), "setting --hosts")
	require.Equal(t, 1, strings.Count(log.String(), "evil.example"), log.String())
}
