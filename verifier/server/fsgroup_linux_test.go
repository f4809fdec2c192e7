package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/server"
)

// TestOpenedToTheGroup: Kubernetes' fsGroup opens all files of a volume to a group. The verifier must close its key
// files, also those of a stream's later tasks, and start. It must refuse files that everybody may read.
func TestOpenedToTheGroup(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	data := filepath.Join(t.TempDir(), "data")
	later := filepath.Join(data, "successors", c.Open.ID.String(), "1-1.keys")
	require.NoError(t, os.MkdirAll(filepath.Dir(later), 0o700))
	c.NextVerifierKeys(t, 1, 1)
	require.NoError(t, os.Rename(filepath.Join(c.Successors("verifier"), "1-1.keys"), later))
	files := []string{c.VerifierSign(), c.VerifierKeys("task0"), later}
	flags := []string{"--task", filepath.Join(c.Dir, "task0.bundle"), "--keys", files[1], "--sign-key", files[0],
		"--data", data}
	for range 2 { // the second start reads what the first wrote
		for _, path := range files {
			require.NoError(t, os.Chmod(path, 0o660))
		}
		p := start(t, flags...)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.cmd.Wait(), p.log.String())
		for _, path := range files {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode().Perm(), path)
			require.Regexp(t, `closed a key file to its group.*file=`+path, p.log.String())
		}
	}
	require.NoError(t, os.Chmod(files[0], 0o664))
	out, err := exec.Command(executable, append([]string{"serve"}, flags...)...).CombinedOutput()
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, string(out), "is open to others than its owner: want mode 0600")
}

// TestPasswordOpenedToTheGroup: the verifier closes the file of its password to the group, too.
func TestPasswordOpenedToTheGroup(t *testing.T) {
	cfg, _ := guarded(t)
	require.NoError(t, os.Chmod(cfg.PasswordFile, 0o660))
	s, err := server.New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	info, err := os.Stat(cfg.PasswordFile)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}
