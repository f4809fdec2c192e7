package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
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

// stepwise is the session of an engine in this process.
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

// statements are those that transactions put and ask, prepared once: to parse one takes longer than to run it on a few
// rows.
type statements struct {
	mu       sync.Mutex // guards the rest
	prepared map[string]*sql.Stmt
	wanted   []string // what was looked for and not found
}

// prepare prepares what is wanted. The caller has no transaction, which would have the connection.
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

// find returns nil for a statement that is looked for for the first time.
func (s *statements) find(query string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	stmt := s.prepared[query]
	if stmt == nil && !slices.Contains(s.wanted, query) {
		s.wanted = append(s.wanted, query)
	}
	return stmt
}

// pipeline is the session of a PostgreSQL server. What was put waits here; BEGIN is the first of it, and COMMIT the
// last.
type pipeline struct {
	ctx   context.Context
	conn  *sql.Conn
	batch *pgx.Batch
	begun bool // the server has been sent something
	err   error
	tag   string
}

func newPipeline(ctx context.Context, db *sql.DB) (*pipeline, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := &pipeline{ctx: ctx, conn: conn, batch: &pgx.Batch{}}
	return p, p.put("BEGIN")
}

func (p *pipeline) put(query string, args ...any) error {
	p.batch.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
		p.tag = tag.String()
		return nil
	})
	return nil
}

func (p *pipeline) ask(asks ...ask) error {
	for _, a := range asks {
		p.batch.Queue(a.query, a.args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := a.scan(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	return p.flush()
}

// flush, once it has failed, fails for ever: what was put may not have been sent, BEGIN among it, and whatever followed
// would be a transaction of its own.
func (p *pipeline) flush() error {
	if p.err != nil || p.batch.Len() == 0 {
		return p.err
	}
	batch := p.batch
	p.batch, p.begun = &pgx.Batch{}, true
	p.err = p.conn.Raw(func(driver any) error {
		return driver.(*stdlib.Conn).Conn().SendBatch(p.ctx, batch).Close()
	})
	return p.err
}

func (p *pipeline) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.flush(); err != nil {
		return nil, err
	}
	return p.conn.ExecContext(ctx, query, args...)
}

func (p *pipeline) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.flush(); err != nil {
		return nil, err
	}
	return p.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext is called after flush.
func (p *pipeline) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.conn.QueryRowContext(ctx, query, args...)
}

// Commit is an error where the server has undone all instead.
func (p *pipeline) Commit() error {
	err := errors.Join(p.put("COMMIT"), p.flush())
	if err == nil && p.tag != "COMMIT" {
		err = fmt.Errorf("the server answered %q", p.tag)
	}
	if err != nil {
		return errors.Join(err, p.Rollback())
	}
	return p.conn.Close()
}

// Rollback gives the connection back. One on which it fails is not used again: its transaction has not ended.
func (p *pipeline) Rollback() error {
	if p.begun {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
		defer cancel()
		p.conn.ExecContext(ctx, "ROLLBACK")
	}
	return p.conn.Close()
}
