package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/server"
)

// TestServeLogs: no line of a log, text or JSON, has a time more precise than a minute, not even the last line. A
// warning names a task for which no owner is configured.
func TestServeLogs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Tasks: 2, Task: relaytest.Mean(10)})
	config := server.Config{SignKey: c.VerifierSign(), Data: t.TempDir()}
	for i, owner := range []string{c.Owner, ""} {
		name := fmt.Sprint("task", i)
		config.Tasks = append(config.Tasks, server.TaskConfig{File: filepath.Join(c.Dir, name+".bundle"), Owner: owner,
			HPKEKeys: c.VerifierKeys(name)})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	logOf := func(args ...string) string {
		config.Listen = relaytest.FreeAddress(t)
		var log bytes.Buffer
		cmd := root()
		cmd.SetErr(&log)
		var flags cli.LogFlags
		flags.Register(cmd)
		require.NoError(t, cmd.ParseFlags(args))
		var err error
		config.Log, err = flags.Log(cmd)
		require.NoError(t, err)
		require.NoError(t, serve(ctx, config))
		return log.String()
	}
	text := logOf()
	require.Contains(t, text, "msg=drained")
	clitest.ByTheMinute(t, text)
	require.Equal(t, 1, strings.Count(text, `msg="task without an owner`), text)
	require.Regexp(t, `level=WARN msg="task without an owner[^\n]* task=\S*task1\.bundle`, text)
	lines := logOf("--log-format", "json")
	require.Contains(t, lines, `"msg":"drained"`)
	require.Regexp(t, `"level":"WARN","msg":"task without an owner[^\n]*"task":"[^"]*task1\.bundle"`, lines)
	clitest.JSONByTheMinute(t, lines)
}
