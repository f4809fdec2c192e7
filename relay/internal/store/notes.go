package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// notes is the part of a store that keeps findings and counts of refusals for operators.
type notes struct{ *database }

// Note stores a finding about batch b. Each reason has one row per epoch. Note returns how many batch numbers now have
// this finding, or 0 if b has it already.
func (d *notes) Note(ctx context.Context, b BatchID, why Reason) (times uint64, err error) {
	err = d.reserve.WithReserve(func() error {
		times, err = d.noteOnce(ctx, b, why)
		return err
	})
	return times, err
}

func (d *notes) noteOnce(ctx context.Context, b BatchID, why Reason) (times uint64, err error) {
	err = d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		if times, err = tx.epochTx().note(e.id, b.Seq, why); err != nil || times == 0 {
			return err
		}
		return tx.step(e, b.EpochID)
	})
	return times, err
}

// note adds a batch number to a finding of a locked epoch. It returns the new count of affected numbers, or 0 if seq
// lies between the lowest and the highest of them. Numbers usually grow, so the count is exact unless two batches are
// checked at once.
func (t epochTx) note(epoch int64, seq uint64, why Reason) (times uint64, err error) {
	var first, latest, further uint64
	const find = `SELECT seq, latest, further FROM findings WHERE epoch = $1 AND reason = $2`
	err = t.row(find, epoch, string(why)).Scan(&first, &latest, &further)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		const store = `INSERT INTO findings (epoch, reason, seq, latest, further) VALUES ($1, $2, $3, $3, 0)`
		_, err = t.exec(store, epoch, string(why), seq)
		return 1, err
	case err != nil || first <= seq && seq <= latest:
		return 0, err
	}
	const more = `UPDATE findings SET seq = $3, latest = $4, further = $5 WHERE epoch = $1 AND reason = $2`
	_, err = t.exec(more, epoch, string(why), min(first, seq), max(latest, seq), further+1)
	return further + 2, err
}

// Findings lists the findings of all epochs.
func (d *notes) Findings(ctx context.Context) ([]Finding, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, seq, reason, further, latest
		FROM findings f JOIN epochs e ON e.id = f.epoch ORDER BY e.epoch, seq, reason`,
		func(rows *sql.Rows) (f Finding, err error) {
			var task []byte
			err = rows.Scan(&task, &f.ID.Epoch, &f.Seq, &f.Reason, &f.Further, &f.Latest)
			copy(f.ID.Task[:], task)
			return f, err
		})
	if err != nil {
		return nil, fmt.Errorf("couldn't list findings: %w", err)
	}
	return out, nil
}

// Tally adds to an epoch's counts of refusals, by reason, unless the epoch has expired. A repeated call counts twice.
func (d *notes) Tally(ctx context.Context, id EpochID, refused map[string]uint64) error {
	return d.reserve.WithReserve(func() error { return d.tallyOnce(ctx, id, refused) })
}

func (d *notes) tallyOnce(ctx context.Context, id EpochID, refused map[string]uint64) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil || e.state >= StateExpired {
			return err
		}
		for reason, n := range refused {
			_, err := tx.exec(`INSERT INTO tallies (epoch, reason, refused) VALUES ($1, $2, $3)
				ON CONFLICT (epoch, reason) DO UPDATE SET refused = tallies.refused + excluded.refused`, e.id, reason, n)
			if err != nil {
				return fmt.Errorf("couldn't store tallies: %w", err)
			}
		}
		return tx.step(e, id)
	})
}

// Tallies lists the counts of refusals of all epochs.
func (d *notes) Tallies(ctx context.Context) ([]Tally, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, reason, refused
		FROM tallies t JOIN epochs e ON e.id = t.epoch ORDER BY e.id, reason`,
		func(rows *sql.Rows) (t Tally, err error) {
			var task []byte
			err = rows.Scan(&task, &t.ID.Epoch, &t.Reason, &t.Refused)
			copy(t.ID.Task[:], task)
			return t, err
		})
	if err != nil {
		return nil, fmt.Errorf("couldn't list tallies: %w", err)
	}
	return out, nil
}
