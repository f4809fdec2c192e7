package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestServeLogs runs the relay and stops it. No line of its log, also not the last, may have a time finer than the
// minute.
func TestServeLogs(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		log := logOf(t, nil)
		require.Contains(t, log, "msg=drained")
		clitest.ByTheMinute(t, log)
	})
	t.Run("json", func(t *testing.T) {
		log := logOf(t, nil, "--log-format", "json")
		require.Contains(t, log, `"msg":"drained"`)
		clitest.JSONByTheMinute(t, log)
	})
	t.Run("errors only", func(t *testing.T) {
		require.Empty(t, logOf(t, func(level string) {
			require.Equal(t, "error\n", exchange(t, "GET", level, "", http.StatusOK))
		}, "--log-level", "error"))
	})
	t.Run("while it runs", func(t *testing.T) {
		require.NotContains(t, logOf(t, func(level string) {
			require.Equal(t, "info\n", exchange(t, "GET", level, "", http.StatusOK))
			require.Contains(t, exchange(t, "PUT", level, "debug", http.StatusBadRequest), "want info, warn or error")
			exchange(t, "PUT", level, "warn\n", http.StatusNoContent)
			require.Equal(t, "warn\n", exchange(t, "GET", level, "", http.StatusOK))
		}), "msg=drained")
	})
	for flag, want := range map[string]string{"format": "text or json", "level": "info, warn or error"} {
		cmd := root()
		cmd.SetArgs([]string{"serve", "--config", "relay.yaml", "--log-" + flag, "loud"})
		require.ErrorContains(t, cmd.Execute(), "invalid log-"+flag+` "loud": want `+want)
	}
}

// logOf returns the log of a relay with flags, which runs until a call of `then` with the address of its log's level.
func logOf(t *testing.T, then func(level string), flags ...string) string {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	var f cli.LogFlags
	cmd := root()
	cmd.SetErr(&log)
	f.Register(cmd)
	require.NoError(t, cmd.ParseFlags(flags))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cmd, &configFlags{config: c.RelayConfig(1)}, &f) }()
	admin := "http://" + c.Config(t, 0).Admin
	require.Eventually(t, func() bool {
		resp, err := http.Get(admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusNoContent
	}, relaytest.Patience, 10*time.Millisecond)
	if then != nil {
		then(admin + "/log-level")
	}
	stop()
	require.NoError(t, <-ended)
	return log.String()
}

// exchange sends a request and returns the body of the answer, which must have a status.
func exchange(t *testing.T, method, url, body string, status int) string {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, status, resp.StatusCode)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(answer)
}
