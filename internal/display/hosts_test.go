package display_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
)

// TestHosts: IP addresses and listed names are served. Any other name that may resolve to this server is refused.
func TestHosts(t *testing.T) {
	var log bytes.Buffer
	hosts := display.NewHosts("admin_hosts", slog.New(slog.NewTextHandler(&log, nil)), "stats.example:8090",
		[]string{"Relay_1", "a.b.example"})
	served := 0
	guarded := hosts.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	ask := func(host string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/status", nil)
		r.Host = host
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		return w
	}
	for _, host := range []string{"", "localhost", "LOCALHOST:1", "localhost.:9081", "127.0.0.1", "127.9.9.9:9081", "[::1]",
		"[::1]:9081", "192.0.2.1:9081", "[2001:db8::1%25eth0]:1", "stats.example", "stats.example:8090", "STATS.example.:1",
		"relay_1:9081", "a.b.example"} {
		require.Equal(t, http.StatusOK, ask(host).Code, host)
	}
	before := served
	for _, host := range []string{"evil.example", "evil.example:9081", "localhost.evil.example", "127.0.0.1.evil.example",
		"stats.example.evil", "b.example", "x.a.b.example", "localhost:1:2", "[::1].evil.example", "[evil.example]:1",
		"127.0.0.1:x:y", "1", "0x7f.1", "relay_1\x1b[2J"} {
		w := ask(host)
		require.Equal(t, http.StatusMisdirectedRequest, w.Code, host)
		require.Contains(t, w.Body.String(), "setting admin_hosts")
		require.NotContains(t, w.Body.String(), "\x1b")
	}
	require.Equal(t, before, served)
	lines := strings.Count(log.String(), "\n")
	require.Equal(t, 8, lines, "the log has some names, and each once")
	require.Contains(t, log.String(), "evil.example")
	for i := range 100 {
		ask(fmt.Sprint("h", i, ".evil"))
	}
	require.Equal(t, lines, strings.Count(log.String(), "\n"))
}

func TestCheckHosts(t *testing.T) {
	require.NoError(t, display.CheckHosts("hosts", nil))
	require.NoError(t, display.CheckHosts("hosts", []string{"relay", "relay_1", "a-b.c.example", "xn--nxasmq6b"}))
	for _, wrong := range []string{"", "a:1", "http://a", "a/b", "*.a", ".a", "a.", "a..b", "-a", "a-", "127.0.0.1", "::1",
		"ä", "a b", strings.Repeat("a", 254)} {
		require.ErrorContains(t, display.CheckHosts("hosts", []string{"good", wrong}), "invalid hosts", wrong)
	}
}
