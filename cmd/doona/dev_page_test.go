package main

import (
	"bytes"
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

// TestDevPagesHaveHeaders walks what 'doona dev' serves: no frame, no guessed type, and no other name that resolves
// here.
func TestDevPagesHaveHeaders(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
	keys, err := keyfile.LoadHPKE(c.VerifierKeys("task0"))
	require.NoError(t, err)
	v, err := verifier.New(c.Open, keys)
	require.NoError(t, err)
	var log bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&log)
	hosts := cli.HostsFlag{"demo.example"}.Hosts(cmd, "")
	clitest.Pages(t, devHandler(hosts, &quickstart.Task{Open: c.Open, Verifier: v}), "/", "/index.html", "/none",
		"/api/report", "/api/report.csv", "/page.js", "/verifier/")
	require.Equal(t, 1, strings.Count(log.String(), "evil.example"), log.String())
}
