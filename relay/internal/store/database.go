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

// database holds what all parts of a [Store] share: SQL connections and transactions. Statements are written for
// PostgreSQL; the engine translates them for SQLite.
//
// A transaction that changes an epoch's state or batches (Commit, Seal, Mix) first locks the epoch's row, or several
// rows in the order of their IDs, so that writers cannot deadlock. One process at a time thus decides about an epoch,
// and sees everything committed before.
type database struct {
	engine
	rollbackLatch
	write, read *sql.DB
	vault       *Vault       // nil in a read-only database
	index       *index       // SQLite: tags and clients in memory; nil if they are in tables
	release     func() error // lets other processes open the file; nil if it is not claimed
	server      string       // URL of the database server, in a store opened by Read
	absent      bool         // the store does not exist yet; this empty one stands for it
	reserve     Reserve
	heartbeat   heartbeat
	ended       atomic.Uint64 // transactions that this process has ended
	gate        gate
}

// engine contains what differs between SQLite and PostgreSQL.
type engine interface {
	// sql translates a PostgreSQL statement.
	sql(query string) string

	// among returns a query for rows of a table. It finds those of epoch $4 of task $3 whose key is one of the packed
	// shorts $1: see packed.
	among(columns, table, key string) string

	// begin begins a transaction. Everything in that transaction uses the returned context.
	begin(ctx context.Context, write *sql.DB) (session, context.Context, error)

	// again reports whether a failed transaction changed nothing and may succeed if it is repeated.
	again(err error) bool

	// history returns the identity of the database server and its timeline; "" for a file.
	history(ctx context.Context, q querier) (string, error)

	// alone reports whether only one process can use the store.
	alone() bool

	// lockProcesses excludes other processes from the tables about processes until the transaction ends.
	lockProcesses(t *transaction) error

	// scrub implements [Store.Scrub].
	scrub(ctx context.Context, write *sql.DB) error
}

// attempts limits how often a transaction is repeated.
const attempts = 10

// within runs do in one durable transaction. If the engine says so, it rolls back and runs do again.
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

// transact runs do in one transaction, without first checking for a state rollback.
func (d *database) transact(ctx context.Context, do func(tx *transaction) error) error {
	if err := d.gate.enter(); err != nil {
		return err
	}
	defer d.gate.leave()
	return d.transactLast(ctx, do)
}

// transactLast is transact even after this process has signed off.
func (d *database) transactLast(ctx context.Context, do func(tx *transaction) error) error {
	tx, ctx, err := d.engine.begin(ctx, d.write)
	if err != nil {
		return fmt.Errorf("couldn't begin a transaction: %w", err)
	}
	ended := false
	defer func() {
		if !ended { // also if do panics: an HTTP server recovers
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
			d.ended.Add(1) // a changed Version makes the epoch loop Reconcile, which writes the marks
		}
		return err
	})
}

// commit commits a transaction, then runs the functions in its field done.
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

// CheckServer returns an error if the relay could not serve from the database server of a store that [Read] opened. It
// writes, and takes that back.
func (d *database) CheckServer(ctx context.Context) error {
	if d.server == "" {
		return nil
	}
	return checkPostgres(ctx, d.server)
}

// Probe writes and deletes 1 MiB of random bytes, which do not compress. It fails if Commit would fail because the disk
// is full.
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

// Version returns a number that changes whenever the store may have changed. It is always 0 if other processes may
// change the store, too.
func (d *database) Version() uint64 {
	if !d.engine.alone() {
		return 0
	}
	return d.ended.Load() + 1
}

// Scrub removes traces of deleted rows from the database's logs, if the engine can.
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

type transaction struct {
	ctx     context.Context
	tx      session
	engine  engine
	vault   *Vault
	index   *index
	pending pendingMarks // rollback mark entries to write before the caller learns the result
	done    []func()     // functions to run after the commit
}

// Each type has a transaction's methods for one part of a store.
type (
	commitTx struct{ *transaction } // reports
	runsTx   struct{ *transaction } // runs (encrypted groups) of clients' rows
	batchTx  struct{ *transaction } // batches
	epochTx  struct{ *transaction } // epochs and their findings
	memberTx struct{ *transaction } // processes that share the database
)

func (t *transaction) commitTx() commitTx { return commitTx{t} }
func (t *transaction) runsTx() runsTx     { return runsTx{t} }
func (t *transaction) batchTx() batchTx   { return batchTx{t} }
func (t *transaction) epochTx() epochTx   { return epochTx{t} }
func (t *transaction) memberTx() memberTx { return memberTx{t} }

// exec runs a statement at once and returns how many rows it changed.
func (t *transaction) exec(query string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(t.ctx, t.engine.sql(query), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// put runs a statement now or together with a later statement of the transaction. It returns only an error, which may
// be that of an earlier statement.
func (t *transaction) put(query string, args ...any) error {
	return t.tx.put(t.engine.sql(query), args...)
}

func (t *transaction) ask(query string, scan func(row scanner) error, args ...any) error {
	return t.tx.ask(ask{t.engine.sql(query), args, scan})
}

func (t *transaction) row(query string, args ...any) scanner {
	if err := t.tx.flush(); err != nil {
		return noRow{err}
	}
	return t.tx.QueryRowContext(t.ctx, t.engine.sql(query), args...)
}

// packed begins a statement that writes or looks up $2 rows at once. $1 is their concatenation; all have one size. i.n
// is the row number, from 0. This takes a fraction of the time of one statement per row.
const packed = `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < $2) `

// most is the maximum number of rows in one packed statement.
const most = 1 << 16

// pack concatenates n rows of size bytes each and calls do for every group of at most most rows. row appends row i.
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

func packShorts(shorts []Short, do func(rows []byte, n int) error) error {
	row := func(to []byte, i int) []byte { return append(to, shorts[i][:]...) }
	return pack(len(shorts), len(Short{}), row, do)
}

// epochRow is an epoch's row, which the transaction has locked.
type epochRow struct {
	id    int64
	state State
	next  uint64
	marks map[string]markRow // nil until read
}

// lockEpoch selects an epoch's row and locks it until the transaction ends.
const lockEpoch = `SELECT id, state, next FROM epochs WHERE task = $1 AND epoch = $2 FOR UPDATE`

// lock locks an epoch's row until the transaction ends. It creates a missing row.
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
