package issuer

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/task"
)

// schema has one row in issued for each token, and one row in store_binding for each task. It stores accounts and
// requests as hashes under a key that the issuer erases when the epoch ends.
const schema = `CREATE TABLE IF NOT EXISTS issued (
	task BLOB NOT NULL, epoch INTEGER NOT NULL, account BLOB NOT NULL, request BLOB NOT NULL,
	PRIMARY KEY (task, epoch, account, request)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS store_binding (
	task BLOB PRIMARY KEY, name TEXT NOT NULL, commits INTEGER NOT NULL, next INTEGER NOT NULL
) WITHOUT ROWID`

// pageSize is SQLite's default page size in bytes. At about logSize bytes, SQLite copies the write-ahead log into the
// database file and restarts the log.
const (
	pageSize = 4096
	logSize  = 4 << 20
)

// hash is the keyed hash of an account or a request, under a key of the epoch.
type hash [16]byte

// store counts tokens durably. It is safe for concurrent use. One process can open it at a time.
type store struct {
	db      *sql.DB // one connection: SQLite has one writer
	release func() error

	requests durable.Coalescer[*countRequest] // merges concurrent requests into a group

	commitMu    sync.Mutex // serializes commits; guards the fields below and the marks
	bindings    map[task.ID]*openBinding
	marksMayLag bool // the marks may be one commit behind the store
}

func storePath(description string) string {
	return strings.TrimPrefix(description, service.SchemeSQLite)
}

// openStore opens or creates a store for this process alone. A commit that returns is on disk (WAL, synchronous=FULL).
// SQLite overwrites deleted content with zeros.
func openStore(description string) (*store, error) {
	path := storePath(description)
	release, err := service.ClaimSQLite(path)
	if err != nil {
		return nil, err
	}
	s, err := connect(path, url.Values{
		"_busy_timeout": {strconv.Itoa(durable.BusyWait)}, "_txlock": {"immediate"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"},
		"_pragma": {"secure_delete(ON)", "temp_store(MEMORY)",
			fmt.Sprintf("wal_autocheckpoint(%d)", logSize/pageSize)},
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s.release = release
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't open the store %s: %w", path, err), s.close())
	}
	return s, nil
}

func readStore(description string) (*store, error) {
	return connect(storePath(description), url.Values{"_busy_timeout": {strconv.Itoa(durable.BusyWait)}, "_pragma": {"query_only(ON)"}})
}

func connect(path string, options url.Values) (*store, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: options.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	db.SetMaxOpenConns(1)
	return &store{db: db, bindings: map[task.ID]*openBinding{}}, nil
}

func (s *store) prepare() error {
	if _, err := s.db.Exec(schema); err != nil {
		return err
	}
	var synchronous, secure int
	var journal string
	for pragma, value := range map[string]any{"synchronous": &synchronous, "secure_delete": &secure,
		"journal_mode": &journal} {
		if err := s.db.QueryRow("PRAGMA " + pragma).Scan(value); err != nil {
			return err
		}
	}
	if journal != "wal" || synchronous != 2 || secure != 1 { // SQLite silently ignores a setting that it cannot apply
		return errors.New("the file system does not allow a write-ahead log")
	}
	return nil
}

// has reports whether the store has a table. A store opened read-only may lack tables, because its issuer creates them.
func (s *store) has(table string) (is bool, err error) {
	err = s.db.QueryRow(`SELECT count(*) FROM sqlite_master WHERE name = ?`, table).Scan(&is)
	return is, err
}

// binding returns the store's copy of a task's binding, or nil if the store has none.
func (s *store) binding(id task.ID) (*storeBinding, error) {
	if is, err := s.has("store_binding"); err != nil || !is {
		return nil, err
	}
	t := &storeBinding{}
	err := s.db.QueryRow(`SELECT name, commits, next FROM store_binding WHERE task = ?`, id[:]).Scan(&t.Name,
		&t.Commits, &t.Next)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return t, err
}

// replaceBinding stores a new binding of a task, and deletes the counts that belong to its old binding.
func (s *store) replaceBinding(id task.ID, t *storeBinding) error {
	return s.transact(func(tx *sql.Tx) error {
		if _, err := tx.Exec(`DELETE FROM issued WHERE task = ?`, id[:]); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT OR REPLACE INTO store_binding (task, name, commits, next) VALUES (?, ?, ?, ?)`, id[:],
			t.Name, t.Commits, t.Next)
		return err
	})
}

// transact runs do in one durable transaction. It ignores the request's cancellation: otherwise a client that
// disconnects would look like a failing store.
func (s *store) transact(do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		return fmt.Errorf("couldn't begin a transaction: %w", err)
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("couldn't commit a transaction: %w", err)
	}
	return nil
}

// probe writes 1 MiB to the store, as much as a few thousand requests write, and deletes it again. It returns an error
// if that fails.
func (s *store) probe() error {
	filler := make([]byte, 1<<20)
	rand.Read(filler) // random bytes do not compress
	err := s.transact(func(tx *sql.Tx) error {
		if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS probe (filler BLOB)`); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO probe VALUES (?)`, filler)
		return err
	})
	if err != nil {
		return err
	}
	return s.transact(func(tx *sql.Tx) error {
		_, err := tx.Exec(`DROP TABLE probe`)
		return err
	})
}

func (s *store) issued(ctx context.Context, task task.ID, epoch uint64) (n uint64, err error) {
	if is, err := s.has("issued"); err != nil || !is {
		return 0, err
	}
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM issued WHERE task = ? AND epoch = ?`, task[:], epoch).Scan(&n)
	return n, err
}

// eraseBatch is how many rows one transaction erases. More rows would delay other transactions, and would need space
// that a full disk does not have.
var eraseBatch int64 = 20_000

// eraseSpace is how many bytes of disk the store needs for erasing: the write-ahead log, which a transaction fills
// before SQLite copies it into the file, and the pages with the rows of one transaction.
const eraseSpace = logSize + 4<<20

// erase deletes the rows of an epoch from the file and from the write-ahead log.
func (s *store) erase(ctx context.Context, task task.ID, epoch uint64) error {
	const some = `DELETE FROM issued WHERE task = ? AND epoch = ? AND (account, request) IN (
		SELECT account, request FROM issued WHERE task = ? AND epoch = ? LIMIT ?)`
	for erased := eraseBatch; erased == eraseBatch; {
		done, err := s.db.ExecContext(ctx, some, task[:], epoch, task[:], epoch, eraseBatch)
		if err == nil {
			erased, err = done.RowsAffected()
		}
		if err != nil {
			return fmt.Errorf("couldn't erase the token counts of epoch %d: %w", epoch, err)
		}
	}
	return s.scrub(ctx)
}

// scrub empties the write-ahead log, which still holds deleted rows and takes disk space.
func (s *store) scrub(ctx context.Context) error { return durable.EmptyLog(ctx, s.db) }

// close closes the database, the marks and the claim on the file.
func (s *store) close() error {
	err := s.db.Close()
	for _, b := range s.bindings {
		err = errors.Join(err, b.close())
	}
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}
