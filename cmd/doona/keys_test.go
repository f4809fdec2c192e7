package main

import (
	"bytes"
	"os"
	"path/filepath"
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

// TestOpenedToTheGroup: Kubernetes' fsGroup opens all files of a volume to a group. The owner's commands must close the
// signing keys that they read.
func TestOpenedToTheGroup(t *testing.T) {
	f := newOwnersFolder(t)
	f.StartAll(t)
	owner, sign := filepath.Join(f.Dir, "owner.key"), f.VerifierSign()
	opened := func(command func()) {
		t.Helper()
		for _, file := range []string{owner, sign} {
			require.NoError(t, os.Chmod(file, 0o660))
		}
		command()
		info, err := os.Stat(owner)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm())
	}
	opened(func() { f.task("may", f.Cascade, "--stream", "may") })
	opened(func() { f.renew(0, "--verifier-sign-key", sign) })
	info, err := os.Stat(sign)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	opened(func() {
		run(t, 0, "task", "stop", filepath.Join(f.path, "may.bundle"), "--sign-key", owner, "--out",
			filepath.Join(f.path, "end.statement"))
	})
}
