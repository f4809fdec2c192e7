package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// BusyWait is how long statements of an SQLite file wait for other programs that use it, in milliseconds.
const BusyWait = 10_000

// scrubWait is how long [EmptyLog] waits for them, in milliseconds.
const scrubWait = 100

// EmptyLog empties the write-ahead log of an SQLite file, which still holds deleted rows and the order of writes. It
// fails while a reader needs the log; the caller repeats it later. It waits only a moment for readers, because all
// writers wait meanwhile. The pool db must have one connection.
func EmptyLog(ctx context.Context, db *sql.DB) error {
	if err := emptyLog(ctx, db); err != nil {
		return fmt.Errorf("couldn't empty the write-ahead log: %w", err)
	}
	return nil
}

func emptyLog(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	wait := func(milliseconds int) error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf(`PRAGMA busy_timeout = %d`, milliseconds))
		return err
	}
	if err := wait(scrubWait); err != nil {
		return err
	}
	var busy, pages, copied int
	err = conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &copied)
	if err == nil && busy != 0 {
		err = errors.New("a reader is using it")
	}
	return errors.Join(err, wait(BusyWait))
}
