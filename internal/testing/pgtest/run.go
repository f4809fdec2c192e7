//go:build unix

package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Standby starts a standby of a running server, in a folder of its own. It follows the server until it takes over.
func (s *Server) Standby() (*Server, error) {
	standby := &Server{bin: s.bin, as: s.as}
	err := standby.mkdir("")
	if err == nil {
		err = standby.copyFrom(s)
	}
	if err == nil {
		err = standby.Restart()
	}
	if err != nil {
		standby.Stop()
		return nil, fmt.Errorf("couldn't start a standby: %w", err)
	}
	return standby, nil
}

func (s *Server) copyFrom(primary *Server) error {
	backup := s.command("pg_basebackup", "-D", s.Data, "-h", primary.dir, "-U", owner, "-R", "-X", "stream",
		"--checkpoint=fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup failed: %w: %s", err, out)
	}
	return nil
}

// TakeOver makes a standby the primary, with a new timeline.
func (s *Server) TakeOver() error {
	db, err := sql.Open("pgx", s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("SELECT pg_promote(true, 60)"); err != nil {
		return fmt.Errorf("couldn't promote the standby: %w", err)
	}
	return nil
}

// Keep copies the data folder of a server that has halted. putBack replaces the folder by that copy.
func (s *Server) Keep() (putBack func() error, err error) {
	kept := filepath.Join(s.dir, "kept")
	if out, err := exec.Command("cp", "-a", s.Data, kept).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("couldn't copy the data folder: %w: %s", err, out)
	}
	return func() error {
		if err := os.RemoveAll(s.Data); err != nil {
			return err
		}
		return os.Rename(kept, s.Data)
	}, nil
}

// At returns the URL of a database of another server's URL at this server.
func (s *Server) At(url string) (string, error) {
	parsed, err := neturl.Parse(url)
	if err != nil {
		return "", err
	}
	return s.dsn(strings.TrimPrefix(parsed.Path, "/")), nil
}

// Folder returns the folder of the server's socket.
func (s *Server) Folder() string { return s.dir }
