package relay

import (
	"context"
	"database/sql"
	"fmt"
)

// progress is that of [store]. A batch that one query misses was made after the query before it:
// what next and open say together holds for good. A batch from next on was begun after the first
// query, and is left out.
func (d *database) progress(ctx context.Context) ([]progress, error) {
	index := map[int64]int{}
	all, err := collect(ctx, d.read, `SELECT id, task, epoch, state, next FROM epochs ORDER BY id`, func(rows *sql.Rows) (p progress, err error) {
		var id int64
		var task []byte
		if err := rows.Scan(&id, &task, &p.id.epoch, &p.state, &p.next); err != nil {
			return p, err
		}
		copy(p.id.task[:], task)
		index[id] = len(index)
		return p, nil
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list epochs: %w", err)
	}
	each := func(query string, add func(p *progress, seq, n uint64)) error {
		_, err := collect(ctx, d.read, query, func(rows *sql.Rows) (_ struct{}, err error) {
			var id int64
			var seq, n uint64
			if err := rows.Scan(&id, &seq, &n); err != nil {
				return struct{}{}, err
			}
			if i, ok := index[id]; ok && seq < all[i].next {
				add(&all[i], seq, n)
			}
			return struct{}{}, nil
		})
		return err
	}
	err = each(`SELECT epoch, seq, submissions FROM open ORDER BY epoch, seq`, func(p *progress, seq, n uint64) {
		p.open = append(p.open, openBatch{p.id, seq, n})
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list open batches: %w", err)
	}
	err = each(`SELECT epoch, seq, 0 FROM batches WHERE bytes IS NOT NULL ORDER BY epoch, seq`, func(p *progress, seq, _ uint64) {
		p.held = append(p.held, seq)
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list sealed batches: %w", err)
	}
	return all, nil
}

// advance is that of [store].
func (d *database) advance(ctx context.Context, id epochID, to state) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil || e.state >= to {
			return err
		}
		for _, table := range obsolete(to) {
			if _, err := tx.exec(`DELETE FROM `+table+` WHERE epoch = $1`, e.id); err != nil {
				return err
			}
		}
		_, err = tx.exec(`UPDATE epochs SET state = $2 WHERE id = $1`, e.id, int(to))
		return err
	})
}

// obsolete lists the tables that have no rows of an epoch that has come that far.
func obsolete(at state) (tables []string) {
	if at >= stateErased {
		tables = append(tables, "seen", "clients")
	}
	if at >= stateExpired {
		tables = append(tables, "batches", "findings", "tallies")
	}
	return tables
}

// note is that of [store].
func (d *database) note(ctx context.Context, f finding) (fresh bool, err error) {
	err = d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(f.id)
		if err != nil {
			return err
		}
		n, err := tx.exec(`INSERT INTO findings (epoch, seq, reason) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, e.id, f.seq, f.reason)
		fresh = n > 0
		return err
	})
	return fresh, err
}

// findings is that of [store].
func (d *database) findings(ctx context.Context) ([]finding, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, seq, reason FROM findings f JOIN epochs e ON e.id = f.epoch ORDER BY e.epoch, seq, reason`,
		func(rows *sql.Rows) (f finding, err error) {
			var task []byte
			err = rows.Scan(&task, &f.id.epoch, &f.seq, &f.reason)
			copy(f.id.task[:], task)
			return f, err
		})
	if err != nil {
		return nil, fmt.Errorf("couldn't list findings: %w", err)
	}
	return out, nil
}

// tally is that of [store].
func (d *database) tally(ctx context.Context, id epochID, refused map[string]uint64) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil || e.state >= stateExpired {
			return err
		}
		for reason, n := range refused {
			_, err := tx.exec(`INSERT INTO tallies (epoch, reason, refused) VALUES ($1, $2, $3)
				ON CONFLICT (epoch, reason) DO UPDATE SET refused = tallies.refused + excluded.refused`, e.id, reason, n)
			if err != nil {
				return fmt.Errorf("couldn't store tallies: %w", err)
			}
		}
		return nil
	})
}

// tallies is that of [store].
func (d *database) tallies(ctx context.Context) ([]tally, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, reason, refused FROM tallies t JOIN epochs e ON e.id = t.epoch ORDER BY e.id, reason`,
		func(rows *sql.Rows) (t tally, err error) {
			var task []byte
			err = rows.Scan(&task, &t.id.epoch, &t.reason, &t.refused)
			copy(t.id.task[:], task)
			return t, err
		})
	if err != nil {
		return nil, fmt.Errorf("couldn't list tallies: %w", err)
	}
	return out, nil
}
