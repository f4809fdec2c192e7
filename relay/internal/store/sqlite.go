package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lite "modernc.org/sqlite" // registers the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
)

// pageSize is the size of SQLite's pages in bytes. A commit writes whole pages even for a few changed bytes. Half of
// SQLite's default saves a sixth of all writes; smaller pages take more time. logSize is about how many bytes the
// write-ahead log reaches before SQLite copies it into the database file. If a reader makes it longer, SQLite later
// truncates it to logSize.
const (
	pageSize = 2048
	logSize  = 4 << 20
)

// sqlite is the [engine] of a database file that one relay process claims. Others may read the file meanwhile, as
// `relay status` does.
type sqlite struct{ kept *statements }

// openSQLite opens or creates a store and claims its file for this process until it is closed.
func openSQLite(path string, v *Vault) (*Store, error) {
	release, err := service.ClaimSQLite(path)
	if err != nil {
		return nil, err
	}
	s, err := writeSQLite(path, v)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s.release = release
	return s, nil
}

// writeSQLite opens a claimed file. Each commit is on disk before it returns (WAL, synchronous=FULL). SQLite overwrites
// deleted content with zeros.
func writeSQLite(path string, v *Vault) (*Store, error) {
	return connectSQLite(path, v, prepareSQLite, fmt.Sprintf("page_size(%d)", pageSize),
		fmt.Sprintf("wal_autocheckpoint(%d)", logSize/pageSize), fmt.Sprintf("journal_size_limit(%d)", logSize),
		"secure_delete(ON)", "temp_store(MEMORY)", "cache_size(-16384)")
}

// readSQLite opens a store read-only, even while a relay runs. It returns errNoStore if there is none.
func readSQLite(path string) (*Store, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, errNoStore
	}
	return connectSQLite(path, nil, func(d *database) error {
		return d.within(context.Background(), func(tx *transaction) error { return migrateSQLite(d, tx) })
	}, "query_only(ON)")
}

// emptySQLite returns an empty store in memory, for a store that has not been created yet.
func emptySQLite() (*Store, error) {
	return connectSQLite(":memory:", nil, func(d *database) error {
		tables, err := readSchema(migrations, "sqlite")
		if err == nil {
			_, err = d.write.Exec(strings.Join(tables.steps, "\n"))
		}
		err = errors.Join(err, d.read.Close()) // a second connection would open a second database
		d.read, d.absent = d.write, true
		return err
	})
}

// connectSQLite opens a file, and sets pragmas on every connection.
func connectSQLite(path string, v *Vault, prepare func(d *database) error, pragmas ...string) (*Store, error) {
	query := url.Values{"_busy_timeout": {strconv.Itoa(durable.BusyWait)}, "_pragma": pragmas}
	if v != nil {
		query.Set("_txlock", "immediate")
		query.Set("_journal_mode", "WAL")
		query.Set("_synchronous", "FULL")
	}
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()
	d := &database{engine: sqlite{&statements{prepared: map[string]*sql.Stmt{}}}, vault: v, index: newIndex()}
	var err error
	if d.write, err = sql.Open("sqlite", dsn); err == nil {
		d.write.SetMaxOpenConns(1) // SQLite has one writer
		d.read, err = sql.Open("sqlite", dsn)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	d.read.SetMaxOpenConns(4)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		// While another process opens or closes the file, SQLite may report at once that the file is busy.
		if err = prepare(d); !isBusy(err) || time.Since(began) > time.Second {
			break
		}
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("couldn't open the store %s: %w", path, err)
	}
	return newStore(d), nil
}

func isBusy(err error) bool {
	var locked *lite.Error
	return errors.As(err, &locked) && locked.Code()&0xff == sqlite3.SQLITE_BUSY
}

// migrateSQLite upgrades the tables. The pragma user_version holds the schema's version.
func migrateSQLite(d *database, tx *transaction) error {
	to, err := readSchema(migrations, "sqlite")
	if err != nil {
		return err
	}
	var version int
	if err := tx.row(`PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	if err := d.migrate(tx, to, version); err != nil || version == to.latest() {
		return err
	}
	_, err = tx.exec(fmt.Sprintf(`PRAGMA user_version = %d`, to.latest()))
	return err
}

// prepareSQLite upgrades the tables and refuses a file system on which commits would not be durable.
func prepareSQLite(d *database) error {
	if err := d.within(context.Background(), func(tx *transaction) error { return migrateSQLite(d, tx) }); err != nil {
		return err
	}
	var synchronous, secure int
	var journal string
	for pragma, value := range map[string]any{
		"synchronous": &synchronous, "secure_delete": &secure, "journal_mode": &journal,
	} {
		if err := d.write.QueryRow("PRAGMA " + pragma).Scan(value); err != nil {
			return err
		}
	}
	if journal != "wal" || synchronous != 2 || secure != 1 { // SQLite may silently ignore a pragma
		return errors.New("the file system does not support SQLite's write-ahead log: want a local disk")
	}
	return nil
}

// toSQLite removes PostgreSQL syntax that SQLite does not need: SQLite does not check types, and its only writer locks
// everything.
var toSQLite = strings.NewReplacer("::bytea", "", " FOR UPDATE", "")

func (sqlite) sql(query string) string { return toSQLite.Replace(query) }

// among makes SQLite look up one packed key after another: it does not reorder a CROSS JOIN.
func (sqlite) among(columns, table, key string) string {
	return packed + `SELECT ` + columns + ` FROM i CROSS JOIN ` + table + `
		WHERE epoch = (SELECT id FROM epochs WHERE task = $3 AND epoch = $4) AND ` + key + ` = substr($1, 8*n + 1, 8)`
}

// begin ignores cancellation. No transaction waits for another process; the longest seals a batch. To watch the
// context, the driver would start a goroutine per statement, which would compete with requests for processors.
func (s sqlite) begin(ctx context.Context, write *sql.DB) (session, context.Context, error) {
	ctx = context.WithoutCancel(ctx)
	if err := s.kept.prepare(ctx, write); err != nil {
		return nil, nil, err
	}
	tx, err := write.BeginTx(ctx, nil)
	return stepwise{tx, ctx, s.kept}, ctx, err
}

// history is empty, because a file has no server.
func (sqlite) history(context.Context, querier) (string, error) { return "", nil }

func isSQLiteError(err error) bool { return errors.As(err, new(*lite.Error)) }

// lockProcesses does nothing, because only one process can use the file.
func (sqlite) lockProcesses(*transaction) error { return nil }

// alone is true, because only one process at a time writes the file.
func (sqlite) alone() bool { return true }

// again is false, because the driver waits for the only lock.
func (sqlite) again(error) bool { return false }

// scrub empties the write-ahead log, which reveals the order in which pages were written. It fails while a reader needs
// the log; the relay then repeats it later.
func (sqlite) scrub(ctx context.Context, write *sql.DB) error { return durable.EmptyLog(ctx, write) }

// EraseRoom is how many bytes of free disk an SQLite store needs to erase and confirm. It is the sum of the log, which
// a transaction fills before SQLite copies it into the file; the largest deleting transaction (a merged run, the zeros
// that replace it and the pages that lead to it); and 4 MiB for what both leave behind.
func EraseRoom() int64 { return logSize + int64(mergeRoom) + 4<<20 }

// stepwise is the session of SQLite, which runs in this process. It runs each statement at once.
type stepwise struct {
	*sql.Tx
	ctx  context.Context
	kept *statements
}

func (s stepwise) put(query string, args ...any) (err error) {
	if stmt := s.kept.find(query); stmt != nil {
		_, err = s.StmtContext(s.ctx, stmt).ExecContext(s.ctx, args...)
	} else {
		_, err = s.ExecContext(s.ctx, query, args...)
	}
	return err
}

func (s stepwise) ask(asks ...ask) error {
	for _, a := range asks {
		if err := s.run(a); err != nil {
			return err
		}
	}
	return nil
}

func (s stepwise) run(a ask) (err error) {
	var rows *sql.Rows
	if stmt := s.kept.find(a.query); stmt != nil {
		rows, err = s.StmtContext(s.ctx, stmt).QueryContext(s.ctx, a.args...)
	} else {
		rows, err = s.QueryContext(s.ctx, a.query, a.args...)
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := a.scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (stepwise) flush() error { return nil }

// statements caches prepared statements, because parsing one takes longer than running it on a few rows.
type statements struct {
	mu       sync.Mutex // guards the rest
	prepared map[string]*sql.Stmt
	wanted   []string // queries to prepare, because find did not have them
}

// prepare prepares the wanted statements. Call it outside of a transaction, because a transaction holds the only
// connection.
func (s *statements) prepare(ctx context.Context, db *sql.DB) error {
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	for _, query := range wanted {
		stmt, err := db.PrepareContext(ctx, query)
		if err != nil {
			return fmt.Errorf("couldn't prepare a statement: %w", err)
		}
		s.mu.Lock()
		s.prepared[query] = stmt
		s.mu.Unlock()
	}
	return nil
}

// find returns a prepared statement. If there is none, it returns nil and adds the query to wanted.
func (s *statements) find(query string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	stmt := s.prepared[query]
	if stmt == nil && !slices.Contains(s.wanted, query) {
		s.wanted = append(s.wanted, query)
	}
	return stmt
}
