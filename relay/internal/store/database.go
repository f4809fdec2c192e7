package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/rollback"
)

// database is what all parts of a [Store] share: SQL and transactions. Statements are written once, for PostgreSQL. The
// engine translates them for SQLite.
//
// A transaction that changes an epoch's state or batches (Commit, Seal, Mix) first locks the epoch's row. It locks
// several rows in the order of their IDs, so that writers cannot deadlock. One process at a time therefore decides, and
// it sees all that was committed before.
type database struct {
	engine
	rollbackLatch
	write, read *sql.DB
	vault       *Vault       // nil in a read-only database
	index       *index       // nil if names are in tables
	release     func() error // releases the file to other processes; nil if it is not claimed
	absent      bool         // the store does not exist yet; this one is empty
	reserve     Reserve
	heartbeat   heartbeat
	ended       atomic.Uint64 // transactions that this process has ended
}

// engine is what differs between SQLite and PostgreSQL.
type engine interface {
	// sql translates a statement.
	sql(query string) string

	// among returns a packed query for the rows of epoch $4 of task $3 in a table whose key is one of the packed
	// shorts.
	among(columns, table, key string) string

	// begin begins a transaction. It returns the context for everything in that transaction.
	begin(ctx context.Context, write *sql.DB) (session, context.Context, error)

	// again says whether a failed transaction did nothing and may succeed if repeated.
	again(err error) bool

	// history identifies the database server and its timeline; "" for a file.
	history(ctx context.Context, q querier) (string, error)

	// alone says whether one process at a time uses the store.
	alone() bool

	// lockProcesses lets one process at a time decide about all processes, until its transaction ends.
	lockProcesses(t *transaction) error

	// scrub implements [Store.Scrub].
	scrub(ctx context.Context, write *sql.DB) error
}

// attempts limits how often a transaction is repeated.
const attempts = 10

// within runs do in one durable transaction. It repeats do where the engine asks for it.
func (d *database) within(ctx context.Context, do func(tx *transaction) error) (err error) {
	for range attempts {
		if err = d.once(ctx, do); err == nil || !d.again(err) {
			return err
		}
	}
	return err
}

func (d *database) once(ctx context.Context, do func(tx *transaction) error) error {
	if err := ctx.Err(); err != nil { // the engine may ignore a context that is done
		return fmt.Errorf("couldn't begin a transaction: %w", err)
	}
	if back := d.rollbackLatch.StateRollback(); back != nil {
		return back
	}
	err := d.transact(ctx, do)
	if back := new(StateRollbackError); errors.As(err, &back) {
		return d.rollbackLatch.stop(ctx, back)
	}
	return err
}

// transact is once without the check for a state rollback.
func (d *database) transact(ctx context.Context, do func(tx *transaction) error) error {
	tx, ctx, err := d.engine.begin(ctx, d.write)
	if err != nil {
		return fmt.Errorf("couldn't begin a transaction: %w", err)
	}
	ended := false
	defer func() {
		if !ended { // also if do panics; a server recovers from that
			tx.Rollback()
		}
	}()
	t := &transaction{ctx: ctx, tx: tx, engine: d.engine, vault: d.vault, index: d.index, pending: pendingMarks{}}
	if err := do(t); err != nil {
		return err
	}
	ended = true
	return rollback.Commit(func() error { return d.commit(t) }, func() error {
		err := t.pending.raise()
		if err != nil {
			d.ended.Add(1) // a caller that compares Version reads again and writes the marks
		}
		return err
	})
}

// commit commits a transaction, then runs its done functions.
func (d *database) commit(t *transaction) error {
	err := t.tx.Commit()
	d.ended.Add(1)
	if err != nil {
		return fmt.Errorf("couldn't commit a transaction: %w", err)
	}
	for _, do := range t.done {
		do()
	}
	return nil
}

// Probe writes and deletes 1 MiB. It fails where Commit would fail on a full disk. The bytes are random, so that they
// do not compress.
func (d *database) Probe(ctx context.Context) error {
	filler := make([]byte, 1<<20)
	rand.Read(filler)
	err := d.within(ctx, func(tx *transaction) error {
		_, err := tx.exec(`INSERT INTO meta (name, value) VALUES ('probe', $1)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, filler)
		return err
	})
	if err != nil {
		return err
	}
	return d.within(ctx, func(tx *transaction) error {
		_, err := tx.exec(`DELETE FROM meta WHERE name = 'probe'`)
		return err
	})
}

// Version returns a number that changes whenever the store may have changed. It is always 0 where other processes also
// change the store.
func (d *database) Version() uint64 {
	if !d.engine.alone() {
		return 0
	}
	return d.ended.Load() + 1
}

// Scrub removes traces of deleted rows from logs, as far as the engine can.
func (d *database) Scrub(ctx context.Context) error {
	return d.reserve.WithReserve(func() error { return d.engine.scrub(ctx, d.write) })
}

// Close closes the store.
func (d *database) Close() error {
	d.index.close()
	err := d.write.Close()
	if d.read != d.write {
		err = errors.Join(d.read.Close(), err)
	}
	if d.release != nil {
		err = errors.Join(err, d.release())
	}
	return err
}

// querier is a transaction or a database.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// collect runs a query and returns what scan makes of each row.
func collect[T any](
	ctx context.Context, q querier, query string, scan func(rows *sql.Rows) (T, error), args ...any,
) (out []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// transaction is an SQL transaction with its context.
type transaction struct {
	ctx     context.Context
	tx      session
	engine  engine
	vault   *Vault
	index   *index
	pending pendingMarks // marks to write before a caller learns the result
	done    []func()     // functions to run after the commit
}

// A transaction's methods for each part of a store.
type (
	commitTx struct{ *transaction } // reports
	runsTx   struct{ *transaction } // runs of client data
	batchTx  struct{ *transaction } // batches
	epochTx  struct{ *transaction } // epochs and their findings
	memberTx struct{ *transaction } // processes that share the database
)

func (t *transaction) commitTx() commitTx { return commitTx{t} }
func (t *transaction) runsTx() runsTx     { return runsTx{t} }
func (t *transaction) batchTx() batchTx   { return batchTx{t} }
func (t *transaction) epochTx() epochTx   { return epochTx{t} }
func (t *transaction) memberTx() memberTx { return memberTx{t} }

// exec runs a statement and returns how many rows it changed.
func (t *transaction) exec(query string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(t.ctx, t.engine.sql(query), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// put runs a statement of which the caller needs only the error, now or with a later statement of the transaction.
func (t *transaction) put(query string, args ...any) error {
	return t.tx.put(t.engine.sql(query), args...)
}

// ask runs a query and calls scan for each row.
func (t *transaction) ask(query string, scan func(row scanner) error, args ...any) error {
	return t.tx.ask(ask{t.engine.sql(query), args, scan})
}

// row reads one row.
func (t *transaction) row(query string, args ...any) scanner {
	if err := t.tx.flush(); err != nil {
		return noRow{err}
	}
	return t.tx.QueryRowContext(t.ctx, t.engine.sql(query), args...)
}

// packed begins a statement over $2 rows of equal size that are concatenated in one value, $1. i.n is the row number,
// from 0. One constant statement thus writes or looks up any number of rows. That takes a fraction of the time of one
// statement per row.
const packed = `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < $2) `

// most limits the rows of one packed statement.
const most = 1 << 16

// pack concatenates n rows of size bytes each and calls do for every group of at most most rows.
func pack(n, size int, row func(to []byte, i int) []byte, do func(rows []byte, n int) error) error {
	for from := 0; from < n; from += most {
		to := min(from+most, n)
		rows := make([]byte, 0, (to-from)*size)
		for i := from; i < to; i++ {
			rows = row(rows, i)
		}
		if err := do(rows, to-from); err != nil {
			return err
		}
	}
	return nil
}

// packShorts is pack for shorts.
func packShorts(shorts []Short, do func(rows []byte, n int) error) error {
	row := func(to []byte, i int) []byte { return append(to, shorts[i][:]...) }
	return pack(len(shorts), len(Short{}), row, do)
}

// epochRow is an epoch's row, locked.
type epochRow struct {
	id    int64
	state State
	next  uint64
	marks map[string]markRow // nil until read
}

// lockEpoch selects an epoch's row and locks it until the transaction ends.
const lockEpoch = `SELECT id, state, next FROM epochs WHERE task = $1 AND epoch = $2 FOR UPDATE`

// lock locks an epoch's row until the transaction ends. It creates the row where there is none.
func (t *transaction) lock(id EpochID) (e epochRow, err error) {
	find := func() error {
		return t.row(lockEpoch, id.Task[:], id.Epoch).Scan(&e.id, &e.state, &e.next)
	}
	if err := find(); !errors.Is(err, sql.ErrNoRows) {
		return e, err
	}
	const create = `INSERT INTO epochs (task, epoch) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	if _, err := t.exec(create, id.Task[:], id.Epoch); err != nil {
		return e, err
	}
	return e, find()
}
