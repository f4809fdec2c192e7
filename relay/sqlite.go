package relay

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/doona-dp/doona/onion"
)

//go:embed schema.sql
var schema string

// pageSize returns the smallest page that keeps rows with slots of this size inside the tree,
// whose places follow the random keys: longer rows go to overflow pages, which are numbered in
// order of arrival. Small pages cost less: a commit writes every page it touches. The bound is
// SQLite's for rows of a WITHOUT ROWID table, (page-12)·64/255-23.
func pageSize(slot int) int {
	const columns = 64 // the rest of a row, at most
	size := 4096
	for size < 65536 && (size-12)*64/255-23 < slot+columns {
		size *= 2
	}
	return size
}

// sqlite is a [store] in a file of one relay process; others may read beside it, as `relay status`
// does.
type sqlite struct {
	write *sql.DB // one connection: SQLite has one writer
	read  *sql.DB

	mu  sync.Mutex        // guards ids
	ids map[epochID]int64 // rows of epochs; they never change
}

// openSQLite opens or creates a store for slots up to a size. Every commit reaches the disk
// before it returns (WAL, synchronous=FULL), and deleted content is overwritten with zeros.
func openSQLite(path string, slot int) (*sqlite, error) {
	query := url.Values{
		"_busy_timeout": {"10000"}, "_txlock": {"immediate"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"},
		"_pragma": {fmt.Sprintf("page_size(%d)", pageSize(slot)), "secure_delete(ON)", "temp_store(MEMORY)", "cache_size(-16384)"},
	}
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()
	s := &sqlite{ids: map[epochID]int64{}}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would ask the umask
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	f.Close()
	if s.write, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	s.read.SetMaxOpenConns(4)
	if err := s.prepare(slot); err != nil {
		s.close()
		return nil, fmt.Errorf("couldn't open the store %s: %w", path, err)
	}
	return s, nil
}

// prepare creates the tables, and refuses a store that cannot keep what it should, or was made
// for smaller slots.
func (s *sqlite) prepare(slot int) error {
	if _, err := s.write.Exec(schema); err != nil {
		return err
	}
	var size, synchronous, secure int
	var journal string
	for pragma, value := range map[string]any{"page_size": &size, "synchronous": &synchronous, "secure_delete": &secure, "journal_mode": &journal} {
		if err := s.write.QueryRow("PRAGMA " + pragma).Scan(value); err != nil {
			return err
		}
	}
	if journal != "wal" || synchronous != 2 || secure != 1 { // SQLite does not say when it cannot
		return errors.New("the file system does not allow a write-ahead log")
	}
	if size < pageSize(slot) {
		return fmt.Errorf("its pages of %d bytes would keep slots of %d bytes in order of arrival: use a new store", size, slot)
	}
	return nil
}

func (s *sqlite) close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// within runs do in one durable transaction.
func (s *sqlite) within(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("couldn't begin: %w", err)
	}
	if err := do(tx); err != nil {
		tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("couldn't commit: %w", err)
	}
	return nil
}

// id returns the row of an epoch, creating it where there is none. The cache is filled only from
// rows that are known to be committed: a transaction that made one may yet fail.
func (s *sqlite) id(ctx context.Context, tx *sql.Tx, id epochID) (row int64, err error) {
	s.mu.Lock()
	row, ok := s.ids[id]
	s.mu.Unlock()
	if ok {
		return row, nil
	}
	const find = `SELECT id FROM epochs WHERE task = ? AND epoch = ?`
	err = tx.QueryRowContext(ctx, find, id.task[:], id.epoch).Scan(&row)
	if err == nil {
		s.mu.Lock()
		s.ids[id] = row
		s.mu.Unlock()
		return row, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `INSERT INTO epochs (task, epoch) VALUES (?, ?) RETURNING id`, id.task[:], id.epoch).Scan(&row)
	return row, err
}

func (s *sqlite) open(ctx context.Context) (out []openBatch, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT task, e.epoch, seq, submissions FROM open o JOIN epochs e ON e.id = o.epoch ORDER BY o.epoch, seq`)
	if err != nil {
		return nil, fmt.Errorf("couldn't list open batches: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b openBatch
		var task []byte
		if err := rows.Scan(&task, &b.id.epoch, &b.seq, &b.submissions); err != nil {
			return nil, err
		}
		copy(b.id.task[:], task)
		out = append(out, b)
	}
	return out, rows.Err()
}

func (s *sqlite) seal(ctx context.Context, b openBatch, build func([]row) (*onion.Batch, error)) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		id, err := s.id(ctx, tx, b.id)
		if err != nil {
			return err
		}
		rows, err := readSlots(ctx, tx, id, b.seq)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return errNoBatch // another process sealed it
		}
		batch, err := build(rows)
		if err != nil {
			return err
		}
		if err := insertBatch(ctx, tx, id, b.seq, batch, true); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM slots WHERE epoch = ? AND seq = ?`, id, b.seq); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM open WHERE epoch = ? AND seq = ?`, id, b.seq)
		return err
	})
}

func readSlots(ctx context.Context, tx *sql.Tx, id int64, seq uint64) (out []row, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT lane, slot FROM slots WHERE epoch = ? AND seq = ?`, id, seq)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.lane, &r.slot); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func insertBatch(ctx context.Context, tx *sql.Tx, id int64, seq uint64, b *onion.Batch, told bool) error {
	raw, err := b.Bytes()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO batches (epoch, seq, manifest, bytes, told) VALUES (?, ?, ?, ?, ?)`, id, seq, b.Manifest, raw, told)
	if err != nil {
		return fmt.Errorf("couldn't store batch: %w", err)
	}
	return nil
}

func (s *sqlite) mix(ctx context.Context, id epochID, seq uint64, slots []slotHashes, build func([]bool) (*onion.Batch, error)) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		e, err := s.id(ctx, tx, id)
		if err != nil {
			return err
		}
		next, err := nextBatch(ctx, tx, e)
		if err != nil {
			return err
		}
		if next != seq {
			return errCursor
		}
		fresh, err := remember(ctx, tx, e, slots)
		if err != nil {
			return err
		}
		batch, err := build(fresh)
		if err != nil {
			return err
		}
		return insertBatch(ctx, tx, e, seq, batch, false)
	})
}

// remember adds slots to the replay set and says which were in it with neither of their hashes.
func remember(ctx context.Context, tx *sql.Tx, id int64, slots []slotHashes) ([]bool, error) {
	insert, err := tx.PrepareContext(ctx, `INSERT OR IGNORE INTO seen (epoch, hash) VALUES (?, ?)`)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	fresh := make([]bool, len(slots))
	for i := range slots {
		fresh[i] = true
		for _, hash := range []*short{&slots[i].ciphertext, &slots[i].tag} {
			n, err := changed(insert.ExecContext(ctx, id, hash[:]))
			if err != nil {
				return nil, err
			}
			fresh[i] = fresh[i] && n == 1
		}
	}
	return fresh, nil
}

func changed(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// querier is a transaction or a database.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func nextBatch(ctx context.Context, q querier, id int64) (next uint64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(seq) + 1, 0) FROM batches WHERE epoch = ?`, id).Scan(&next)
	return next, err
}

// epochOf selects the row of an epoch in queries that must not create one.
const epochOf = `(SELECT id FROM epochs WHERE task = ? AND epoch = ?)`

func (s *sqlite) next(ctx context.Context, id epochID) (next uint64, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT COALESCE(MAX(seq) + 1, 0) FROM batches WHERE epoch = `+epochOf, id.task[:], id.epoch).Scan(&next)
	return next, err
}

func (s *sqlite) batch(ctx context.Context, id epochID, seq uint64) (*sealed, error) {
	var b sealed
	err := s.read.QueryRowContext(ctx, `SELECT manifest, bytes, bytes IS NULL FROM batches WHERE epoch = `+epochOf+` AND seq = ?`,
		id.task[:], id.epoch, seq).Scan(&b.manifest, &b.bytes, &b.confirmed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errNoBatch
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read batch: %w", err)
	}
	return &b, nil
}

func (s *sqlite) manifest(ctx context.Context, id epochID, seq uint64) (manifest []byte, confirmed bool, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT manifest, bytes IS NULL FROM batches WHERE epoch = `+epochOf+` AND seq = ?`,
		id.task[:], id.epoch, seq).Scan(&manifest, &confirmed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, errNoBatch
	}
	if err != nil {
		return nil, false, fmt.Errorf("couldn't read manifest: %w", err)
	}
	return manifest, confirmed, nil
}

// exec runs one statement in a transaction of its own.
func (s *sqlite) exec(ctx context.Context, query string, args ...any) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (s *sqlite) confirm(ctx context.Context, id epochID, seq uint64) error {
	return s.exec(ctx, `UPDATE batches SET bytes = NULL WHERE bytes IS NOT NULL AND epoch = `+epochOf+` AND seq = ?`, id.task[:], id.epoch, seq)
}

func (s *sqlite) untold(ctx context.Context, id epochID) (out []uint64, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT seq FROM batches WHERE epoch = `+epochOf+` AND told = 0 ORDER BY seq`, id.task[:], id.epoch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq uint64
		if err := rows.Scan(&seq); err != nil {
			return nil, err
		}
		out = append(out, seq)
	}
	return out, rows.Err()
}

func (s *sqlite) told(ctx context.Context, id epochID, seq uint64) error {
	return s.exec(ctx, `UPDATE batches SET told = 1 WHERE epoch = `+epochOf+` AND seq = ?`, id.task[:], id.epoch, seq)
}

// newRowID returns a random primary key.
func newRowID() []byte {
	id := make([]byte, 16)
	rand.Read(id)
	return id
}
