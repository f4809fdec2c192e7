//go:build unix

package pgtest_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
)

// TestServer: committed data survives a crash, and a stopped server leaves no files.
func TestServer(t *testing.T) {
	pgtest.Need(t)
	s, err := pgtest.Start()
	require.NoError(t, err)
	defer s.Stop()
	url, err := s.Database()
	require.NoError(t, err)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE kept AS SELECT 7 AS n")
	require.NoError(t, err)
	for _, end := range []func() error{s.Crash, s.Halt} {
		require.NoError(t, end())
		require.Error(t, db.Ping())
		require.NoError(t, s.Restart())
		var n int
		require.NoError(t, db.QueryRow("SELECT n FROM kept").Scan(&n))
		require.Equal(t, 7, n)
	}
	require.NoError(t, s.Stop())
	require.NoDirExists(t, s.Data)
}
