package relay_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestOpenedToTheGroup: Kubernetes' fsGroup opens all files of a volume to a group. The relay must close its key files
// and start. It must refuse files that everybody may read.
func TestOpenedToTheGroup(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Start(t, 0)()
	cfg := c.Config(t, 0)
	files := []string{cfg.SignKey, cfg.Secret, cfg.Tasks[0].HPKEKeys}
	for _, path := range files {
		require.NoError(t, os.Chmod(path, 0o660))
	}
	status, _, log := run(t, "check-config", "--config", c.RelayConfig(1))
	require.Zero(t, status, log)
	for _, path := range files {
		require.NoError(t, os.Chmod(path, 0o660))
	}
	startProcess(t, c, 0)
	for _, path := range files {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm(), path)
	}
	require.NoError(t, os.Chmod(cfg.SignKey, 0o644))
	status, _, log = run(t, "check-config", "--config", c.RelayConfig(1))
	require.Equal(t, 1, status)
	require.Contains(t, log, "is open to others than its owner: want mode 0600")
}
