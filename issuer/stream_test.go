package issuer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
)

// TestStreamWithoutKeys: the issuer must not accept a stream's next task if it has no keys for it, and must still issue
// tokens of other tasks. As soon as it has the keys, it must serve the next task, with and without a restart.
func TestStreamWithoutKeys(t *testing.T) {
	inStream := relaytest.InStream()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, inStream, relaytest.WithTokens)})
	cfg := c.IssuerConfig()
	cfg.Tasks[0].Successors = ""
	_, err := issuer.New(cfg)
	require.ErrorContains(t, err, "invalid successors")

	c.StartAll(t)
	stop := c.StartIssuer(t, c.IssuerConfig())
	keys := filepath.Join(c.Successors("issuer"), "1-1.keys")
	bundle := c.Renew(t, 1, 1)
	require.NoError(t, os.Rename(keys, keys+".away"))
	require.NoError(t, c.Hand(t.Context(), t, 0, bundle))
	next := c.After(t, bundle)
	answers := func(of *relaytest.Cascade) int {
		resp, err := http.Get(of.Open.DirectoryURL(0))
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	time.Sleep(100 * time.Millisecond) // time for several attempts to follow the stream
	require.Equal(t, http.StatusNotFound, answers(next))
	require.NoFileExists(t, filepath.Join(c.Successors("issuer"), "1.bundle"))
	require.Equal(t, http.StatusOK, answers(c))
	require.NoError(t, os.Rename(keys+".away", keys))
	known := func() bool { return answers(next) == http.StatusConflict } // its epoch is not open yet
	require.Eventually(t, known, relaytest.Patience, 10*time.Millisecond)
	stop()
	c.StartIssuer(t, c.IssuerConfig())
	require.True(t, known())
}
