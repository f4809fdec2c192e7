package store

import (
	"context"
	"database/sql"
)

// session is the connection of a transaction that has begun. An engine with a remote server sends statements together:
// waiting for an answer costs more than the statement itself.
type session interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)

	// put runs a statement now, or together with the next ones. Its error may come from a later one.
	put(query string, args ...any) error

	// ask runs queries in order, in one round trip. Each query sees everything committed before it began, even if the
	// query before it waited for a lock.
	ask(asks ...ask) error

	// flush runs the statements that put has queued.
	flush() error

	Commit() error
	Rollback() error
}

// ask is a query and the function that scans its rows.
type ask struct {
	query string
	args  []any
	scan  func(row scanner) error
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

// noRow is the row of a query that failed before it ran.
type noRow struct{ error }

func (n noRow) Scan(...any) error { return n.error }
