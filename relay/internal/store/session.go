package store

import (
	"context"
	"database/sql"
)

// session is the connection of a transaction that has begun. It sends statements to a remote server together, because
// waiting for an answer takes longer than a statement.
type session interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)

	// put runs a statement now, or later together with other statements. In the second case a later call returns its
	// error.
	put(query string, args ...any) error

	// ask runs queries in order, in one round trip. Each query sees everything that was committed before it began, even
	// if the previous query waited for a lock.
	ask(asks ...ask) error

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

type scanner interface{ Scan(into ...any) error }

// noRow is the row of a query that was not run because an earlier statement failed. Its Scan returns that error.
type noRow struct{ error }

func (n noRow) Scan(...any) error { return n.error }
