package main

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestServeLogs runs the relay and stops it. No line of its log, also not the last, may have a time finer than the
// minute.
func TestServeLogs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	cmd := root()
	cmd.SetErr(&log)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cmd, &configFlags{config: c.RelayConfig(1)}) }()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + c.Config(t, 0).Admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusNoContent
	}, relaytest.Patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, log.String(), "msg=drained")
	clitest.ByTheMinute(t, log.String())
}
