package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

func (s *sqlite) states(ctx context.Context) (map[epochID]state, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT task, epoch, state FROM epochs`)
	if err != nil {
		return nil, fmt.Errorf("couldn't list epochs: %w", err)
	}
	defer rows.Close()
	out := map[epochID]state{}
	for rows.Next() {
		var id epochID
		var task []byte
		var st state
		if err := rows.Scan(&task, &id.epoch, &st); err != nil {
			return nil, err
		}
		copy(id.task[:], task)
		out[id] = st
	}
	return out, rows.Err()
}

func (s *sqlite) advance(ctx context.Context, id epochID, to state) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		e, err := s.id(ctx, tx, id)
		if err != nil {
			return err
		}
		if to == stateErased {
			for _, table := range []string{"seen", "clients"} {
				if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE epoch = ?`, e); err != nil {
					return err
				}
			}
		}
		_, err = tx.ExecContext(ctx, `UPDATE epochs SET state = MAX(state, ?) WHERE id = ?`, to, e)
		return err
	})
}

func (s *sqlite) note(ctx context.Context, f finding) (fresh bool, err error) {
	err = s.within(ctx, func(tx *sql.Tx) error {
		e, err := s.id(ctx, tx, f.id)
		if err != nil {
			return err
		}
		n, err := changed(tx.ExecContext(ctx, `INSERT OR IGNORE INTO findings (epoch, seq, reason) VALUES (?, ?, ?)`, e, f.seq, f.reason))
		fresh = n > 0
		return err
	})
	return fresh, err
}

func (s *sqlite) findings(ctx context.Context) (out []finding, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT task, e.epoch, seq, reason FROM findings f JOIN epochs e ON e.id = f.epoch ORDER BY e.epoch, seq, reason`)
	if err != nil {
		return nil, fmt.Errorf("couldn't list findings: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var f finding
		var task []byte
		if err := rows.Scan(&task, &f.id.epoch, &f.seq, &f.reason); err != nil {
			return nil, err
		}
		copy(f.id.task[:], task)
		out = append(out, f)
	}
	return out, rows.Err()
}

func (s *sqlite) summary(ctx context.Context, id epochID) (out summary, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(*) - COUNT(bytes) FROM batches WHERE epoch = `+epochOf,
		id.task[:], id.epoch).Scan(&out.sealed, &out.confirmed)
	return out, err
}

// scrub empties the write-ahead log, which holds pages in the order they were written. It fails
// while a reader needs the log; the next scrub then does it.
func (s *sqlite) scrub(ctx context.Context) error {
	var busy, log, done int
	if err := s.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done); err != nil {
		return fmt.Errorf("couldn't empty the log: %w", err)
	}
	if busy != 0 {
		return errors.New("couldn't empty the log: it is being read")
	}
	return nil
}
