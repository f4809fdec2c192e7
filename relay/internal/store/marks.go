package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
)

// This file has the SQL of the table rollback_marks: a [rollback.Count] for each rollback mark and epoch. steps grows
// with each transaction that changes the epoch. marked is how many of these steps the mark on disk had when the last
// one began.

// markRow is the store's record of a rollback mark in one epoch.
type markRow struct {
	key  rollback.EpochKey
	file string
	kind int
	rollback.Count
}

// marksOf selects the rows of all rollback marks of one epoch.
const marksOf = `SELECT file, steps, marked FROM rollback_marks WHERE epoch = ` + epochOf

func (e *epochRow) addMark(row scanner) error {
	var m markRow
	err := row.Scan(&m.file, &m.Steps, &m.Marked)
	e.marks[m.file] = m
	return err
}

type markTx struct{ *transaction }

func (t *transaction) markTx() markTx { return markTx{t} }

// read reads the rows of an epoch's rollback marks, unless e has them already.
func (t markTx) read(e *epochRow, id EpochID) error {
	if e.marks != nil {
		return nil
	}
	e.marks = map[string]markRow{}
	err := t.tx.ask(ask{t.engine.sql(marksOf), []any{id.Task[:], id.Epoch}, e.addMark})
	if err != nil {
		return fmt.Errorf("couldn't read the store's record of rollback marks: %w", err)
	}
	return nil
}

func (t markTx) write(e epochRow, row markRow) error {
	err := t.put(`INSERT INTO rollback_marks (epoch, file, kind, steps, marked) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (epoch, file) DO UPDATE SET steps = excluded.steps, marked = excluded.marked`,
		e.id, row.file, row.kind, row.Steps, row.Marked)
	if err != nil {
		return fmt.Errorf("couldn't record a step for a rollback mark: %w", err)
	}
	return nil
}

// markTable reads the table rollback_marks outside of transactions.
type markTable struct{ *database }

// all lists the rows of all rollback marks and epochs.
func (d markTable) all(ctx context.Context) ([]markRow, error) {
	const query = `SELECT task, e.epoch, file, kind, steps, marked FROM rollback_marks m JOIN epochs e ON e.id = m.epoch`
	out, err := collect(ctx, d.read, query, func(rows *sql.Rows) (row markRow, err error) {
		var id []byte
		err = rows.Scan(&id, &row.key.Epoch, &row.file, &row.kind, &row.Steps, &row.Marked)
		copy(row.key.Task[:], id)
		return row, err
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list the store's record of rollback marks: %w", err)
	}
	return out, nil
}
