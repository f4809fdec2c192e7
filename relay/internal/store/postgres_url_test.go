//go:build !nopostgres

package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// TestNoPassword: if the server wants a password and the relay has none, the error must name the file that was
// searched. The URL may name it, or else the environment. Otherwise it is .pgpass in the home folder.
func TestNoPassword(t *testing.T) {
	const url = "postgres://doona@localhost/doona"
	folder := t.TempDir()
	file, other := filepath.Join(folder, "pgpass"), filepath.Join(folder, "other")
	for _, path := range []string{file, other} {
		require.NoError(t, os.WriteFile(path, []byte("db.example:5432:doona:doona:secret\n"), 0o600))
	}
	explained := func(url, code string) string {
		config, err := parsePostgres(url)
		require.NoError(t, err)
		return explain(config, &pgconn.PgError{Code: code, Message: "refused"}).Error()
	}
	t.Setenv("HOME", folder)
	t.Setenv("PGPASSFILE", "")
	require.Contains(t, explained(url, "28P01"), "no password for this server, database and user in "+
		filepath.Join(folder, ".pgpass")+": name the file by ?passfile=PATH")
	t.Setenv("HOME", "")
	require.Contains(t, explained(url, "28000"), "in .pgpass: ")
	t.Setenv("PGPASSFILE", other)
	require.Contains(t, explained(url, "28P01"), "in "+other+": ")
	require.Contains(t, explained(url+"?passfile="+file, "28P01"), "in "+file+": ")
	require.NotContains(t, explained("postgres://doona:secret@localhost/doona", "28P01"), "no password")
	require.NotContains(t, explained(url, "3D000"), "no password")
}
