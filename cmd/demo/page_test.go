package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestPagesHaveHeaders walks what the demo serves: no frame, no guessed type, and no other name that resolves here.
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
	hosts := cli.HostsFlag{"demo.example"}.Hosts(cmd, "127.0.0.1:0")
	ended, end := context.WithCancel(t.Context())
	end()
	r := &road{&quickstart.Task{Open: c.Open, Verifier: v}}
	p := &page{www: www, tasks: map[string]*crowd{liveTask: {road: r}}, month: &monthMaker{ctx: ended}, hosts: hosts}
	id := c.Open.ID.String()
	clitest.Pages(t, p.handler("https://relay.example"), "/", "/index.html", "/none", "/api/month",
		"/api/month/charts/visits", "/api/none", "/api/none/chart", "/api/"+liveTask+"/chart", "/api/"+liveTask+"/fill",
		"/api/alone", "/verifier/", "/verifier/tasks/"+id+"/", "/verifier/"+liveTask+"/", "/api/report",
		"/api/report.csv", "/page.js")
	require.Equal(t, 1, strings.Count(log.String(), "evil.example"), log.String())
}
