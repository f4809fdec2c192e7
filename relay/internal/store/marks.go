package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
)

// The store keeps a [rollback.Count] for each mark and epoch, in the table marks: steps, which grows in each
// transaction that changes the epoch, and marked, what the mark held on disk when that transaction began. Here is the
// SQL of it.

// markRow is what the store knows of a mark in an epoch.
type markRow struct {
	key  rollback.Epoch
	file string
	kind int
	rollback.Count
}

// marksOf selects what is known of an epoch's marks.
const marksOf = `SELECT file, steps, marked FROM marks WHERE epoch = ` + epochOf

// addMark takes note of a mark by its name.
func (e *epochRow) addMark(row scanner) error {
	var m markRow
	err := row.Scan(&m.file, &m.Steps, &m.Marked)
	e.marks[m.file] = m
	return err
}

// markTx reads and writes marks' rows in a transaction.
type markTx struct{ *transaction }

func (t *transaction) markTx() markTx { return markTx{t} }

// read reads what is known of an epoch's marks, where that has not been read.
func (t markTx) read(e *epochRow, id EpochID) error {
	if e.marks != nil {
		return nil
	}
	e.marks = map[string]markRow{}
	err := t.tx.ask(ask{t.engine.sql(marksOf), []any{id.Task[:], id.Epoch}, e.addMark})
	if err != nil {
		return fmt.Errorf("couldn't read marks: %w", err)
	}
	return nil
}

// write stores what is known of a mark from now on.
func (t markTx) write(e epochRow, row markRow) error {
	err := t.put(`INSERT INTO marks (epoch, file, kind, steps, marked) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (epoch, file) DO UPDATE SET steps = excluded.steps, marked = excluded.marked`,
		e.id, row.file, row.kind, row.Steps, row.Marked)
	if err != nil {
		return fmt.Errorf("couldn't count a step: %w", err)
	}
	return nil
}

// markTable is the table of them.
type markTable struct{ *database }

// all lists what is known of all marks.
func (d markTable) all(ctx context.Context) ([]markRow, error) {
	const query = `SELECT task, e.epoch, file, kind, steps, marked FROM marks m JOIN epochs e ON e.id = m.epoch`
	out, err := collect(ctx, d.read, query, func(rows *sql.Rows) (row markRow, err error) {
		var id []byte
		err = rows.Scan(&id, &row.key.Epoch, &row.file, &row.kind, &row.Steps, &row.Marked)
		copy(row.key.Task[:], id)
		return row, err
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list marks: %w", err)
	}
	return out, nil
}
