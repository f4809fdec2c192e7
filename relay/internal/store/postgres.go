//go:build !nopostgres

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgres is the [engine] of a PostgreSQL database, version 15 or newer. Several relay processes of one operator may
// share it.
type postgres struct{}

// settings apply to every connection, unless the URL sets them. Timeouts are in ms: a process that hangs or is cut off
// keeps a lock for at most one minute. Read committed: a transaction that waited for an epoch's lock must see what
// others committed meanwhile. No seqscan: a planner without statistics must not read whole tables, because every
// statement finds its rows by primary key. No jit: the few statements that do read a whole small table then seem to
// cost 10¹⁰, for which the server would load its JIT compiler in every new connection.
var settings = map[string]string{
	"application_name":                    "doona relay",
	"default_transaction_isolation":       "read committed",
	"statement_timeout":                   "300000",
	"lock_timeout":                        "30000",
	"idle_in_transaction_session_timeout": "60000",
	"tcp_keepalives_idle":                 "30",
	"tcp_keepalives_interval":             "10",
	"tcp_keepalives_count":                "3",
	"enable_seqscan":                      "off",
	"jit":                                 "off",
}

// openPostgres opens the database at a URL and upgrades its tables. If the server restarts, the driver reconnects.
func openPostgres(url string, v *Vault) (*Store, error) {
	return connectPostgres(url, v, preparePostgres, stdlib.OptionAfterConnect(checkDurable))
}

// readPostgres opens a database read-only, even while relays run. It returns errNoStore if there is no store.
func readPostgres(url string) (*Store, error) {
	return connectPostgres(url, nil, func(d *database) error {
		var table *string
		if err := d.read.QueryRow(`SELECT to_regclass('schema_version')::text`).Scan(&table); err != nil {
			return err
		}
		if table == nil {
			return errNoStore
		}
		return d.within(context.Background(), func(tx *transaction) error { return migratePostgres(d, tx) })
	}, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeExec {
			return nil // Behind a pooler the setting would reach other connections.
		}
		_, err := conn.Exec(ctx, `SET default_transaction_read_only = on`)
		return err
	}))
}

func connectPostgres(
	url string, v *Vault, prepare func(d *database) error, option stdlib.OptionOpenDB,
) (*Store, error) {
	config, err := parsePostgres(url)
	if err != nil {
		return nil, fmt.Errorf("couldn't open the store: %w", err)
	}
	db := stdlib.OpenDB(*config, option)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	d := &database{engine: postgres{}, write: db, read: db, vault: v}
	if err := prepare(d); err != nil {
		d.Close()
		return nil, fmt.Errorf("couldn't open the store at %s, database %s: %w", config.Host, config.Database,
			explain(config, err))
	}
	return newStore(d), nil
}

// errTakenBack ends the transaction of checkPostgres.
var errTakenBack = errors.New("taken back")

// checkPostgres does what openPostgres does, in a transaction that it takes back. It also reads the server's identity,
// which some managed services hide.
func checkPostgres(ctx context.Context, url string) error {
	config, err := parsePostgres(url)
	if err != nil {
		return fmt.Errorf("couldn't open the store: %w", err)
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(checkDurable))
	defer db.Close()
	d := &database{engine: postgres{}, write: db, read: db}
	err = d.within(ctx, func(tx *transaction) error {
		for _, statement := range []string{
			`CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)`,
			`CREATE TABLE doona_check (version INTEGER NOT NULL)`,
			`INSERT INTO schema_version (version) VALUES (0)`,
		} {
			if _, err := tx.exec(statement); err != nil {
				return err
			}
		}
		if err := tx.tx.flush(); err != nil {
			return err
		}
		if _, err := d.history(ctx, tx.tx); err != nil {
			return err
		}
		return errTakenBack
	})
	if errors.Is(err, errTakenBack) {
		return nil
	}
	return fmt.Errorf("couldn't write to the store at %s, database %s: %w", config.Host, config.Database,
		explain(config, err))
}

// checkDurable refuses a connection that has lost its time limits, whose commits return before they are on disk, or
// whose transactions would read an old snapshot.
func checkDurable(ctx context.Context, conn *pgx.Conn) error {
	show := func(name string) (value string, err error) {
		return value, conn.QueryRow(ctx, "SHOW "+name).Scan(&value)
	}
	if value, err := show("default_transaction_isolation"); err != nil || value != "read committed" {
		return errors.Join(err, fmt.Errorf("invalid setting default_transaction_isolation = %s: want read committed",
			value))
	}
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		if conn.Config().RuntimeParams[name] == "0" { // the operator wants none
			continue
		}
		if value, err := show(name); err != nil || value == "0" {
			return errors.Join(err, fmt.Errorf("invalid setting %s = 0: the relay's own setting does not reach the "+
				"server, because a pooler such as PgBouncer is in between: %s", name, pooled))
		}
	}
	for _, name := range []string{"synchronous_commit", "fsync"} {
		value, err := show(name)
		if err != nil {
			return err
		}
		if value == "off" || value == "local" {
			return fmt.Errorf("invalid setting %s = %s of the server: want on, or acknowledged reports could be lost",
				name, value)
		}
	}
	return nil
}

// migrationLock is the number of the advisory lock that a process holds while it changes the schema.
const migrationLock = 0x646f6f6e61 // "doona"

// preparePostgres upgrades the tables. If several processes start at once, only one of them does so. It changes nothing
// if the server hides its identity.
func preparePostgres(d *database) error {
	ctx := context.Background()
	return d.within(ctx, func(tx *transaction) error {
		if _, err := tx.exec(`SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		if _, err := d.history(ctx, tx.tx); err != nil {
			return err
		}
		if _, err := tx.exec(`CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)`); err != nil {
			return err
		}
		return migratePostgres(d, tx)
	})
}

func migratePostgres(d *database, tx *transaction) error {
	to, err := readSchema(migrations, "postgres")
	if err != nil {
		return err
	}
	var version int
	if err := tx.row(`SELECT COALESCE(MAX(version), 0) FROM schema_version`).Scan(&version); err != nil {
		return err
	}
	if err := d.migrate(tx, to, version); err != nil || version == to.latest() {
		return err
	}
	_, err = tx.exec(`INSERT INTO schema_version (version) VALUES ($1)`, to.latest())
	return err
}

func (postgres) sql(query string) string { return query }

// among makes the server look up one key after another. Without LIMIT, a planner without statistics would join with the
// whole table or search by epoch alone.
func (postgres) among(columns, table, key string) string {
	return packed + `SELECT found.* FROM i CROSS JOIN LATERAL (
		SELECT ` + columns + ` FROM ` + table + `
		WHERE epoch = (SELECT id FROM epochs WHERE task = $3 AND epoch = $4)
			AND ` + key + ` = substr($1::bytea, 8*n + 1, 8) LIMIT 1) found`
}

// begin keeps the caller's context, so that its cancellation ends the wait for a hanging server.
func (postgres) begin(ctx context.Context, write *sql.DB) (session, context.Context, error) {
	p, err := newPipeline(ctx, write)
	return p, ctx, err
}

// again is true for the error codes 40001 and 40P01: the server has rolled this transaction back in favour of another
// one. It is also true if the connection broke before anything was sent.
func (postgres) again(err error) bool {
	var pg *pgconn.PgError
	return pgconn.SafeToRetry(err) || errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// history returns the server's identifier and timeline. The timeline changes when a replica is promoted, or when a
// backup is restored from the server's log.
func (postgres) history(ctx context.Context, q querier) (out string, err error) {
	const query = `SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
		FROM pg_control_system()`
	err = q.QueryRowContext(ctx, query).Scan(&out)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42"): // no such function, or no right to call it
		return "", fmt.Errorf("couldn't read the server's identity: %w: some managed services hide these functions, and "+
			"the relay cannot use such a server (docs/relay.md, Store)", err)
	case err != nil:
		return "", fmt.Errorf("couldn't read the server's identity: %w", err)
	}
	return out, nil
}

func isPostgresError(err error) bool {
	return errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(*pgconn.ConnectError))
}

// processesLock is the number of the advisory lock that a process holds while it lists or fences processes. A row lock
// would not suffice, because the first process finds no row.
const processesLock = migrationLock + 1

func (postgres) lockProcesses(t *transaction) error {
	_, err := t.exec(`SELECT pg_advisory_xact_lock($1)`, int64(processesLock))
	return err
}

// alone is false: several processes may share a database. Each has the same key files or copies of them.
func (postgres) alone() bool { return false }

// scrub does nothing: the keys that encrypted or hashed deleted rows are destroyed.
func (postgres) scrub(context.Context, *sql.DB) error { return nil }

// pipeline is the session of a PostgreSQL transaction. put only queues statements, from BEGIN to COMMIT; flush sends
// them together.
type pipeline struct {
	ctx   context.Context
	conn  *sql.Conn
	batch *pgx.Batch
	begun bool // statements have been sent to the server
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

// flush sends the queued statements. After one failure it always fails: the server may not have received BEGIN, so it
// would run a later statement outside of this transaction.
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

// QueryRowContext needs an empty queue: the caller has called flush.
func (p *pipeline) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.conn.QueryRowContext(ctx, query, args...)
}

// Commit also returns an error if the server answers COMMIT with a rollback.
func (p *pipeline) Commit() error {
	err := errors.Join(p.put("COMMIT"), p.flush())
	if err == nil && p.tag != "COMMIT" {
		err = fmt.Errorf("the server answered COMMIT with %q", p.tag)
	}
	if err != nil {
		return errors.Join(err, p.Rollback())
	}
	return p.conn.Close()
}

// Rollback returns the connection to the pool. If ROLLBACK fails, the driver discards the connection, whose transaction
// has not ended.
func (p *pipeline) Rollback() error {
	if p.begun {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
		defer cancel()
		p.conn.ExecContext(ctx, "ROLLBACK")
	}
	return p.conn.Close()
}
