package issuer_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
)

// TestOpenedToTheGroup: Kubernetes' fsGroup opens all files of a volume to a group. The issuer must close its key
// files, also those of a stream's later tasks, and start. It must refuse files that everybody may read.
func TestOpenedToTheGroup(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Task: relaytest.Mean(10, relaytest.InStream(), relaytest.WithTokens)})
	cfg := accounts(t, c, 1)
	cfg.SignKey = filepath.Join(c.Dir, "issuer", "sign.key")
	c.NextIssuerKeys(t, 1, 1)
	later := filepath.Join(c.Successors("issuer"), "1-1.keys")
	files := []string{cfg.SignKey, cfg.APIKeys, cfg.Tasks[0].TokenKeys, later}
	for name, start := range map[string]func() (*issuer.Issuer, error){
		"issuer serve":        func() (*issuer.Issuer, error) { return issuer.New(cfg) },
		"issuer check-config": func() (*issuer.Issuer, error) { return issuer.Inspect(cfg) },
	} {
		var log bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		for _, path := range files {
			require.NoError(t, os.Chmod(path, 0o660))
		}
		i, err := start()
		require.NoError(t, err, name)
		require.NoError(t, i.Close())
		for _, path := range files {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode().Perm(), path)
			require.Regexp(t, `closed a key file to its group.*file=`+path, log.String(), name)
		}
	}
	require.NoError(t, os.Chmod(cfg.SignKey, 0o664))
	_, err := issuer.New(cfg)
	require.ErrorContains(t, err, "is open to others than its owner: want mode 0600")
}
