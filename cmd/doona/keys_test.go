package main

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
)

// run runs doona and returns its output.
func run(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	require.Equal(t, status, cli.Run(cmd, args), "%v", args)
	return out.String()
}

// makeEpochKeys makes a relay's or the verifier's keys for a number of epochs, signed by the key in the file sign.
func makeEpochKeys(t *testing.T, sign string, epochs int, out string) {
	t.Helper()
	hop := cli.Root("verifier", "", "", cli.Keygen("verifier"))
	hop.SetOut(&bytes.Buffer{})
	require.Zero(t, cli.Run(hop, []string{"keygen", "--kind", "hpke", "--sign-key", sign, "--epochs",
		strconv.Itoa(epochs), "--out", out}))
}
