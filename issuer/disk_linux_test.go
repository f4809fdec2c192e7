package issuer_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestFullDisk fills the disk with an issuer's store and keys, and keeps it full until an epoch has ended. A client
// that has a token may repeat its request; nobody else gets a token. /readyz and the metrics must report the full disk.
// The issuer must erase the epoch's key and counts although the disk is full. When there is space again, the issuer
// issues tokens, and the counts are unchanged.
func TestFullDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	relaytest.Mount(t, disk, "size=16m")
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "test", Query: task.Mean, Hi: 10, Batch: 20, Honest: 0.9,
			Epsilon: 2, Delta: 1e-4})
		require.NoError(t, err)
		*draft = *calibrated
		relaytest.WithTokens(draft)
		draft.Epochs = task.Epochs{Start: uint64(time.Now().Unix()) + 2, Length: 6, Count: 4}
	}})
	cfg := accounts(t, c, 1)
	cfg.Store, cfg.Skew = "sqlite:"+filepath.Join(disk, "issuer.db"), time.Second
	keys, err := os.ReadFile(cfg.Tasks[0].TokenKeys)
	require.NoError(t, err)
	cfg.Tasks[0].TokenKeys = filepath.Join(disk, "task.keys")
	require.NoError(t, os.WriteFile(cfg.Tasks[0].TokenKeys, keys, 0o600))
	cfg.AdminListener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	page := func(path string) string {
		resp, err := http.Get("http://" + cfg.AdminListener.Addr().String() + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}
	c.StartAll(t)
	c.StartIssuer(t, cfg)
	url := c.Open.Clients.Issuer.URL
	time.Sleep(time.Until(time.Unix(int64(c.Open.Epochs.Start), 0)))
	require.Empty(t, page("/readyz"))
	anns := request(t, c, 1)
	first, err := ask(t, url, c, 1, anns, account("ann"))
	require.NoError(t, err)
	_, err = ask(t, url, c, 0, request(t, c, 0), account("ann"))
	require.NoError(t, err)

	require.NoError(t, relaytest.Fill(disk))
	require.Contains(t, page("/readyz"), "full", "readyz fails before a write has failed")
	again, err := ask(t, url, c, 1, anns, account("ann"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	bobs := request(t, c, 1)
	_, err = ask(t, url, c, 1, bobs, account("bob"))
	require.ErrorIs(t, err, problem.New(problem.Overloaded, ""))
	require.Contains(t, page("/readyz"), "full")
	require.NotContains(t, page("/metrics"), "\ndoona_issuer_store_errors_total 0\n")
	require.Contains(t, page("/metrics"), "\ndoona_issuer_ready 0\n")
	end := time.Unix(int64(c.Open.Epochs.End(0)), 0)
	time.Sleep(time.Until(end))
	require.Eventually(t, func() bool {
		keys, err := keyfile.LoadRSA(cfg.Tasks[0].TokenKeys)
		require.NoError(t, err)
		return !slices.Contains(keys.Epochs(), 0)
	}, 20*time.Second, 10*time.Millisecond)
	t.Logf("the key was erased %v after the epoch's end, including 1 s for clients' clocks", time.Since(end))
	more := filepath.Join(disk, "more")
	require.Eventually(t, func() bool { // the issuer reserves the freed space again, so the disk is full again
		err := os.WriteFile(more, make([]byte, 1<<20), 0o600)
		require.NoError(t, os.Remove(more))
		return err != nil
	}, relaytest.Patience, 10*time.Millisecond)
	require.Contains(t, page("/readyz"), "full")

	require.NoError(t, os.Remove(filepath.Join(disk, "filler")))
	require.Eventually(t, func() bool { return page("/readyz") == "" }, relaytest.Patience, 10*time.Millisecond)
	require.NotContains(t, page("/status"), "full")
	_, err = ask(t, url, c, 1, bobs, account("bob"))
	require.NoError(t, err)
	for _, name := range []string{"ann", "bob"} {
		_, err = ask(t, url, c, 1, request(t, c, 1), account(name))
		require.ErrorIs(t, err, problem.New(problem.Limit, ""), name)
	}
}
