package crashtest_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// store reads a relay's database. With SQLite, read only while the relay is suspended.
type store struct {
	kind string  // sqlite or postgres
	url  string  // path of the SQLite file, or URL of the database
	db   *sql.DB // nil with SQLite
}

func openPostgres(t *testing.T, url string) *store {
	t.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return &store{"postgres", url, db}
}

// open returns the database and a function that closes it. For SQLite it opens a copy of the file and its log: opening
// the original would do the recovery that the relay must do itself.
func (s *store) open() (*sql.DB, func(), error) {
	if s.db != nil {
		return s.db, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "crash-db")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	for _, suffix := range []string{"", "-wal"} {
		in, err := os.ReadFile(s.url + suffix)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "copy"+suffix), in, 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			remove()
			return nil, nil, err
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "copy"))
	return db, func() { db.Close(); remove() }, err
}

// storeState is the unfinished work in a relay's database.
type storeState struct {
	sealing     int  // open batches that are full, or of a closed epoch
	ending      int  // epochs that are complete and not erased
	unconfirmed int  // batches made here whose source is not confirmed to the upstream relay
	busy        bool // the process runs a transaction and waits for no lock; always true with SQLite
	made        map[epochKey]uint64
}

// read reads the unfinished work; none if the database has no tables or is unreachable. It waits at most half a second:
// the server may itself wait for a suspended process.
func (s *store) read(process string) (in storeState) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	in.made = map[epochKey]uint64{}
	db, leave, err := s.open()
	if err != nil {
		return in
	}
	defer leave()
	in.busy = true
	if s.kind == "postgres" {
		const busy = `SELECT COUNT(*) > 0 FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL AND wait_event_type IS DISTINCT FROM 'Lock'`
		if err := db.QueryRowContext(ctx, busy, process).Scan(&in.busy); err != nil {
			return in
		}
	}
	err = db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM open JOIN epochs ON epochs.id = open.epoch WHERE submissions >= $1 OR state = 1),
		(SELECT COUNT(*) FROM epochs WHERE state = 2),
		(SELECT COUNT(*) FROM batches WHERE confirmed = 0)`, batchSize).Scan(&in.sealing, &in.ending, &in.unconfirmed)
	if err != nil {
		if strings.Contains(err.Error(), "column") { // without this, the test would go on without evidence
			panic(err)
		}
		return in
	}
	rows, err := db.QueryContext(ctx, `SELECT task, epoch, next FROM epochs`)
	if err != nil {
		return in
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		var at epochKey
		var next uint64
		if rows.Scan(&id, &at.epoch, &next) == nil {
			copy(at.task[:], id)
			in.made[at] = next
		}
	}
	return in
}

// rows counts the rows of a table.
func (s *store) rows(t *testing.T, table string) (n int) {
	t.Helper()
	db, leave, err := s.open()
	require.NoError(t, err)
	defer leave()
	require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM `+table).Scan(&n))
	return n
}
