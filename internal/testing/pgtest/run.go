//go:build unix

package pgtest

import (
	"context"
	"database/sql"
	"time"
)

// KeepRunning restarts the server whenever it ends by itself, until ctx ends. Wait until KeepRunning returns before you
// stop or restart the server in another way.
func (s *Server) KeepRunning(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
		}
		if s.Restart() != nil { // for example because its disk is full
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
}

// KeepLogShort limits the server's write-ahead log to about 48 MiB, for a small disk.
func (s *Server) KeepLogShort() error {
	db, err := sql.Open("pgx", s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for _, change := range []string{"ALTER SYSTEM SET max_wal_size = '48MB'", "ALTER SYSTEM SET min_wal_size = '32MB'",
		"SELECT pg_reload_conf()"} {
		if _, err := db.Exec(change); err != nil {
			return err
		}
	}
	return nil
}
