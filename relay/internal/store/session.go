package store

import (
	"context"
	"database/sql"
)

// session is the connection of a transaction, which has begun. An engine whose server is far away, by a process's
// measure, sends it what it can at once: each answer that a process waits for costs it more than the statement.
type session interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)

	// put runs a statement now, or with what comes next. Its error may be that of what comes next.
	put(query string, args ...any) error

	// ask runs queries in their order, as one: each sees what was committed before it began, also where the one before
	// it had to wait for a lock.
	ask(asks ...ask) error

	// flush runs what was put.
	flush() error

	Commit() error
	Rollback() error
}

// ask is a query, and what scans its rows.
type ask struct {
	query string
	args  []any
	scan  func(row scanner) error
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

// noRow is the row of a query that was not run.
type noRow struct{ error }

func (n noRow) Scan(...any) error { return n.error }
