package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestServeLogs runs the issuer and stops it, with a log of text and of JSON. No line, also not the last, may have a
// time finer than the minute.
func TestServeLogs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	of := c.IssuerConfig()
	config := filepath.Join(c.Dir, "issuer.yaml")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	logOf := func(args ...string) string {
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `listen: %q
store: %q
clients: address
tasks: [{file: %q, owner: %q, token_keys: %q}]
`, relaytest.FreeAddress(t), of.Store, of.Tasks[0].File, c.Owner, of.Tasks[0].TokenKeys), 0o600))
		var log bytes.Buffer
		cmd := root()
		cmd.SetErr(&log)
		var flags cli.LogFlags
		flags.Register(cmd)
		require.NoError(t, cmd.ParseFlags(args))
		require.NoError(t, serve(ctx, cmd, config, &flags))
		return log.String()
	}
	text := logOf()
	require.Contains(t, text, "msg=drained")
	clitest.ByTheMinute(t, text)
	lines := logOf("--log-format", "json")
	require.Contains(t, lines, `"msg":"drained"`)
	clitest.JSONByTheMinute(t, lines)
}
