package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
)

// TestOpenedToTheGroup: Kubernetes' fsGroup opens all files of a volume to a group. Commands must close the key files
// that they read, and say so.
func TestOpenedToTheGroup(t *testing.T) {
	f := newFiles(t)
	f.write(t, 0, "a.batch")
	keys, sign := f.VerifierKeys("task0"), f.VerifierSign()
	for _, one := range []struct {
		file string
		args []string
	}{
		{keys, append([]string{"analyze", "--task", f.bundle, "--keys", keys}, f.paths...)},
		{sign, []string{"keygen", "--kind", "hpke", "--sign-key", sign, "--out", filepath.Join(t.TempDir(), "keys")}},
	} {
		require.NoError(t, os.Chmod(one.file, 0o660))
		var out, log bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetErr(&log)
		require.Zero(t, cli.Run(cmd, one.args), "%v\n%s", one.args, &log)
		require.Contains(t, log.String(), "closed a key file to its group")
		info, err := os.Stat(one.file)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm())
	}
}
