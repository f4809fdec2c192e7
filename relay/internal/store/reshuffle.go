package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/randomizer"
)

// scattered is the level of the first bucket's pieces: see Reshuffle. No merge reaches so high a level.
const scattered = 1 << 16

// Reshuffle merges the runs of an open batch and permutes its slots anew, so that what lies together on the disk no
// longer tells which slots came in one transaction. size is the batch's size in submissions. It works in transactions
// of about mergeRoom bytes and may be interrupted after each: the batch always has each slot once. It does nothing once
// the batch is full or its epoch closed: sealing then permutes it, and reads the runs meanwhile.
//
// A batch of more than mergeRoom bytes is permuted in two steps. The first moves each slot to a bucket chosen uniformly
// at random. The second merges the pieces of each bucket, which permutes the bucket. Together that is a uniformly
// random order. Slots that come meanwhile stay as they came.
func (d *batches) Reshuffle(ctx context.Context, b BatchID, size uint64) error {
	if short := d.reserve.Short(); short != nil {
		return short
	}
	err := d.heartbeat.during(ctx, func() error { return d.reshuffle(ctx, b, size) })
	if errors.Is(err, ErrNoBatch) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("couldn't permute an open batch anew: %w", err)
	}
	return nil
}

func (d *batches) reshuffle(ctx context.Context, b BatchID, size uint64) error {
	var epoch int64
	const find = `SELECT o.epoch FROM open o JOIN epochs e ON e.id = o.epoch
		WHERE e.task = $1 AND e.epoch = $2 AND seq = $3`
	if err := d.find(ctx, find, b, &epoch); err != nil {
		return err
	}
	runs, total, fresh := []int64{}, 0, false
	const list = `SELECT id, level, length(bytes) FROM runs WHERE epoch = $1 AND seq = $2 ORDER BY id`
	_, err := collect(ctx, d.read, list, func(rows *sql.Rows) (_ struct{}, err error) {
		var id int64
		var level, size int
		err = rows.Scan(&id, &level, &size)
		runs, total, fresh = append(runs, id), total+size, fresh || level == 0
		return struct{}{}, err
	}, epoch, b.Seq)
	if err != nil || len(runs) == 1 && !fresh {
		return err
	}
	buckets := 1
	if total > mergeRoom {
		buckets = 1 + 2*total/mergeRoom
		for _, run := range runs {
			err := d.inOpen(ctx, b, size, func(t runsTx, to runTarget) error { return t.scatter(to, run, buckets) })
			if err != nil {
				return err
			}
		}
	}
	for bucket := range buckets {
		err := d.inOpen(ctx, b, size, func(t runsTx, to runTarget) error {
			if buckets == 1 {
				return t.gather(to, `level >= $3`, 0)
			}
			return t.gather(to, `level = $3`, scattered+bucket)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inOpen runs do in a transaction with the runs of a batch that is filling, or returns ErrNoBatch. Afterwards it counts
// the bytes of the batch's level 0 runs anew.
func (d *batches) inOpen(ctx context.Context, b BatchID, size uint64, do func(t runsTx, to runTarget) error) error {
	c, err := d.vault.batchCipher(kindRows, b)
	if err != nil {
		return err
	}
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		var open bool
		const query = `SELECT EXISTS (SELECT 1 FROM open WHERE epoch = $1 AND seq = $2 AND submissions < $3)`
		if err := tx.row(query, e.id, b.Seq, size).Scan(&open); err != nil {
			return err
		}
		if !open || e.state != StateOpen {
			return ErrNoBatch
		}
		to := runTarget{e.id, b.Seq, c, func(int) runMerger { return &slotRun{} }}
		if err := do(tx.runsTx(), to); err != nil {
			return err
		}
		return tx.put(`UPDATE open SET fresh = (SELECT COALESCE(SUM(length(bytes) + $3), 0) FROM runs
			WHERE epoch = $1 AND seq = $2 AND level = 0) WHERE epoch = $1 AND seq = $2`, e.id, b.Seq, page)
	})
}

// scatter moves each slot of a run to a bucket chosen at random. It is no error if another process has merged the run.
func (t runsTx) scatter(to runTarget, run int64, buckets int) error {
	var all slotRun
	err := t.ask(`SELECT bytes FROM runs WHERE id = $1`, func(row scanner) error {
		plain, err := openRun(to.c, row)
		if err != nil {
			return err
		}
		return all.add(plain)
	}, run)
	if err != nil || len(all.rows) == 0 {
		return err
	}
	if err := t.put(`DELETE FROM runs WHERE id = $1`, run); err != nil {
		return err
	}
	pieces, src := make([]slotRun, buckets), randomizer.NewSource()
	for _, row := range all.rows {
		p := &pieces[src.Below(uint64(buckets))]
		p.rows, p.size = append(p.rows, row), all.size
	}
	for bucket := range pieces {
		if len(pieces[bucket].rows) == 0 {
			continue
		}
		if _, err := t.putRun(to.epoch, to.seq, scattered+bucket, to.c, pieces[bucket].pack()); err != nil {
			return err
		}
	}
	return nil
}

// gather merges the batch's runs for which a condition on their level holds into one of level 1.
func (t runsTx) gather(to runTarget, condition string, level int) error {
	var due []int64
	query := `SELECT id FROM runs WHERE epoch = $1 AND seq = $2 AND ` + condition + ` ORDER BY id`
	err := t.ask(query, func(row scanner) error {
		var id int64
		err := row.Scan(&id)
		due = append(due, id)
		return err
	}, to.epoch, to.seq, level)
	if err != nil || len(due) == 0 {
		return err
	}
	return t.merge(to, 0, due, &slotRun{})
}
