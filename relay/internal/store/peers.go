package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Several processes may share a PostgreSQL database, each with marks of its own. A batch is handed out only
// when its leaf is cut in the marks of all of them: else one that lives on, or comes back, beside a database
// that was set back could make another batch of that number. A process that is not heard of for
// [fenceAfter] is fenced: the others go on without it, and it hands out nothing until it has caught up, beside
// one that was never fenced.
//
//	the maker crashes            the restart, or another process, sees      and does
//	before its own cut           a batch that is not cut                    cuts, waits for all, serves
//	before the others' cuts      a batch that is cut here alone             the same
//	after the first byte         a batch that all have cut                  serves the same bytes; where the
//	                                                                        database was set back: [SetBack]
//
// A fenced process that starts again waits for one that was not: its own marks may lack what was handed out
// meanwhile, and a database that was set back would not tell it. Nor does it tell a process that was away,
// and is not fenced there since that was set back too: then only the neighbours know.

// fenceAfter is how long a process may be silent before the others go on without it. Each is heard of about
// once a second.
const fenceAfter = 10 * time.Second

// ErrUncut is returned for a batch whose number another process has not cut yet.
var ErrUncut = errors.New("another process has not taken note of the batch yet")

// now is the database's clock, in seconds.
const now = `EXTRACT(EPOCH FROM clock_timestamp())::float8`

// meet has the others hear of this process, which has just caught up with the store, and tells them which
// batches it has cut.
func (d *database) meet(ctx context.Context, all []Progress) error {
	if d.engine.alone() || len(all) == 0 {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	back, err := d.admitted(ctx, name)
	if err != nil || !back {
		return err
	}
	const join = `INSERT INTO processes (file, seen, fenced) VALUES ($1, ` + now + `, 0)
		ON CONFLICT (file) DO UPDATE SET seen = excluded.seen, fenced = 0`
	if _, err := d.write.ExecContext(ctx, join, name); err != nil {
		return fmt.Errorf("couldn't be heard of: %w", err)
	}
	const cut = `INSERT INTO cuts (epoch, seq, file) SELECT epoch, seq, $1 FROM batches
		WHERE bytes IS NOT NULL AND epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3)` + `
		AND seq = $4 ON CONFLICT DO NOTHING`
	held := map[heldBatch]bool{}
	for i := range all {
		for _, seq := range all[i].Held {
			key := heldBatch{all[i].ID, seq}
			held[key] = true
			if d.told[key] {
				continue
			}
			if _, err := d.write.ExecContext(ctx, cut, name, key.id.Task[:], key.id.Epoch, seq); err != nil {
				return fmt.Errorf("couldn't tell of a cut: %w", err)
			}
		}
	}
	d.told = held
	d.met.Store(true)
	return nil
}

// heldBatch names a batch that the others have been told of.
type heldBatch struct {
	id  EpochID
	seq uint64
}

// admitted says whether this process may go on: it is not fenced, or new, or another one that is not fenced
// has been heard of since this one looked first.
func (d *database) admitted(ctx context.Context, name string) (ok bool, err error) {
	var fenced, known int
	var latest, at float64
	const query = `SELECT COALESCE(SUM(CASE WHEN file = $1 THEN fenced END), 0), COUNT(*),
		COALESCE(MAX(CASE WHEN file <> $1 AND fenced = 0 THEN seen END), 0), ` + now + ` FROM processes`
	if err := d.read.QueryRowContext(ctx, query, name).Scan(&fenced, &known, &latest, &at); err != nil {
		return false, fmt.Errorf("couldn't look for other processes: %w", err)
	}
	if fenced == 0 {
		d.fencedAt = 0
		return true, nil
	}
	d.met.Store(false)
	if d.fencedAt == 0 {
		d.fencedAt = at
	}
	return latest > d.fencedAt, nil
}

// cutByAll is [ErrUncut] until all processes have cut a batch that this one has cut, or were fenced.
func (d *database) cutByAll(ctx context.Context, id EpochID, seq uint64) error {
	if d.engine.alone() {
		return nil
	}
	if !d.met.Load() {
		if _, err := d.Follow(ctx); err != nil {
			return err
		}
		if !d.met.Load() {
			return ErrUncut
		}
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	const missing = `file <> $1 AND fenced = 0 AND NOT EXISTS (SELECT 1 FROM cuts c WHERE c.file = processes.file
		AND c.seq = $4 AND c.epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3))`
	const fence = `UPDATE processes SET fenced = 1 WHERE ` + missing + ` AND seen < ` + now + ` - $5::float8
		AND EXISTS (SELECT 1 FROM processes me WHERE me.file = $1 AND me.fenced = 0)`
	err = d.within(ctx, func(tx *transaction) error { // one at a time, or two could fence each other
		if _, err := tx.exec(`SELECT file FROM processes ORDER BY file FOR UPDATE`); err != nil {
			return err
		}
		_, err := tx.exec(fence, name, id.Task[:], id.Epoch, seq, fenceAfter.Seconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("couldn't fence other processes: %w", err)
	}
	var others, fenced int
	const count = `SELECT COUNT(CASE WHEN ` + missing + ` THEN 1 END),
		COALESCE(SUM(CASE WHEN file = $1 THEN fenced END), 1) FROM processes`
	err = d.read.QueryRowContext(ctx, count, name, id.Task[:], id.Epoch, seq).Scan(&others, &fenced)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("couldn't look for other processes: %w", err)
	}
	if others > 0 || fenced > 0 {
		return ErrUncut
	}
	return nil
}
