package relay_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestReaderOfTheStore: another program reads the relay's SQLite file and does not end. The relay must go on, without
// letting reports wait for the reader, and say while it lasts that the log still holds deleted rows. Then it must empty
// the log by itself.
func TestReaderOfTheStore(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Start(t, 0)
	path := filepath.Join(filepath.Dir(c.Config(t, 0).Secret), "relay.db")
	shows := func(value string) {
		t.Helper()
		_, metrics := getAdmin(t, c, 0, "metrics")
		require.Contains(t, metrics, "\ndoona_relay_unscrubbed "+value+"\n")
	}
	const why = "the store's log still holds deleted rows: couldn't empty the write-ahead log: a reader is using it"
	says := func() bool {
		_, out, _ := run(t, "status", "--admin", "http://"+c.Config(t, 0).Admin)
		return strings.Contains(out, why)
	}
	require.False(t, says())
	shows("0")
	reader, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer reader.Close()
	snapshot, err := reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var epochs int
	require.NoError(t, snapshot.QueryRow(`SELECT count(*) FROM epochs`).Scan(&epochs))
	fillEpoch(t, c, 0)
	c.Clock.Advance(relaytest.Epoch + relaytest.Epoch/2)
	requireSoon(t, says)
	shows("1")
	soon, cancel := context.WithTimeout(t.Context(), 9*time.Second) // A writer waits up to 10 s for a reader.
	defer cancel()
	for i := range 10 {
		require.NoError(t, c.Post(soon, 1, c.Seal(t, 1, uint64(i)), relaytest.Network(i)))
	}
	require.NoError(t, snapshot.Rollback())
	requireSoon(t, func() bool {
		info, err := os.Stat(path + "-wal")
		return err == nil && info.Size() == 0 && !says()
	})
	shows("0")
}
