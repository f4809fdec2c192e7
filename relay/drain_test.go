package relay_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
)

// TestSignals: a real process must survive SIGHUP. After SIGTERM it must serve for drain_delay, while balancers and
// operators see that it is not ready and an orchestrator sees that it lives. Then it must end in order.
func TestSignals(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	config := c.RelayConfig(1)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	loaded, err := relay.LoadConfig(config)
	require.NoError(t, err)
	const delay = 2 * time.Second
	require.NoError(t, os.WriteFile(config, fmt.Appendf(text, "drain_delay: %s\n", delay), 0o600))
	p := startProcess(t, c, 0)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(path string) int {
		resp, err := client.Get("http://" + loaded.Listen + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	health := func(flags ...string) int {
		code, _, _ := run(t, append([]string{"health", "--config", config}, flags...)...)
		return code
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, http.StatusNoContent, status("/healthz"))
	require.Zero(t, health())

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	begun := time.Now()
	require.Eventually(t, func() bool { return status("/healthz") == http.StatusServiceUnavailable }, delay,
		20*time.Millisecond)
	require.Equal(t, 1, health())
	require.Zero(t, health("--live"))
	require.Equal(t, http.StatusOK, status("/v1/tasks/"+c.Open.ID.String()))
	require.NoError(t, p.cmd.Wait())
	require.GreaterOrEqual(t, time.Since(begun), delay)

	for bad, want := range map[string]string{"drain_delay: 11m": "invalid drain_delay 11m0s: want 0s to 10m",
		"idle_timeout: 1ms": "invalid idle_timeout 1ms: want 1s to 1h", "drain_delay: 5": "drain_delay"} {
		require.NoError(t, os.WriteFile(config, append(text, bad...), 0o600))
		code, _, log := run(t, "check-config", "--config", config)
		require.Equal(t, 1, code)
		require.Contains(t, log, want, strings.TrimSpace(bad))
	}
}
