package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// batches is the part of a store that makes batches, keeps them until the next hop has them, and keeps the upstream
// relay's signed manifests.
type batches struct {
	*database
	reconciler *reconciler
	members    *members
}

// Seal makes a batch of a full or closed open batch: build gets the rows and returns the batch. If another process has
// done so, Seal returns ErrNoBatch. While it runs, others may write to the store, and this process sends heartbeats.
func (d *batches) Seal(ctx context.Context, b BatchID, build SealFunc) error {
	if short := d.reserve.Short(); short != nil {
		return short
	}
	return d.heartbeat.during(ctx, func() error { return d.seal(ctx, b, build) })
}

// SealWithheld is Seal for a batch that build withholds. Such a batch frees disk space, so SealWithheld works on a full
// disk.
func (d *batches) SealWithheld(ctx context.Context, b BatchID, build SealFunc) error {
	return d.heartbeat.during(ctx, func() error {
		return d.reserve.WithReserve(func() error { return d.seal(ctx, b, build) })
	})
}

func (d *batches) seal(ctx context.Context, b BatchID, build SealFunc) error {
	if back := d.rollbackLatch.StateRollback(); back != nil {
		return back
	}
	var epoch int64
	var submissions uint64
	const find = `SELECT o.epoch, submissions FROM open o JOIN epochs e ON e.id = o.epoch
		WHERE e.task = $1 AND e.epoch = $2 AND seq = $3`
	err := d.find(ctx, find, b, &epoch, &submissions)
	if err != nil {
		return err
	}
	rows, err := d.rows(ctx, epoch, b)
	if err != nil {
		return err
	}
	a, err := d.newAttempt(ctx, epoch, b)
	if err != nil {
		return err
	}
	made, err := build(submissions, rows, a.put)
	if err != nil {
		return errors.Join(err, a.abandon())
	}
	return a.last(func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		n, err := tx.exec(`DELETE FROM open WHERE epoch = $1 AND seq = $2 AND submissions = $3`, e.id, b.Seq, submissions)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNoBatch // another process was faster
		}
		if err := a.finish(tx, made, 1); err != nil {
			return err
		}
		return errors.Join(tx.step(e, b.EpochID, b.Seq), tx.batchTx().sweep(e.id, b.Seq, []byte{}))
	})
}

// Mix makes batch b from a batch of the upstream relay. If b is not the epoch's next batch it returns ErrMade, or
// ErrOver if the epoch is complete. tags are the tags of the upstream batch; Mix reorders them and adds all to the
// replay set. build learns from fresh which slots to take: one for each new tag. If build fails, these tags remain new
// for another attempt at b. While Mix runs, others may write to the store.
func (d *batches) Mix(ctx context.Context, b BatchID, tags []Short, build MixFunc) error {
	if short := d.reserve.Short(); short != nil {
		return short
	}
	return d.mix(ctx, b, tags, build)
}

// MixWithheld is Mix for a batch that build withholds. It works on a full disk.
func (d *batches) MixWithheld(ctx context.Context, b BatchID, tags []Short, build MixFunc) error {
	return d.reserve.WithReserve(func() error { return d.mix(ctx, b, tags, build) })
}

func (d *batches) mix(ctx context.Context, b BatchID, tags []Short, build MixFunc) error {
	fresh, epoch, err := d.admit(ctx, b, tags)
	if err != nil {
		return err
	}
	a, err := d.newAttempt(ctx, epoch, b)
	if err != nil {
		return err
	}
	made, err := build(fresh, a.put)
	if err != nil {
		return errors.Join(err, a.abandon())
	}
	if made.Withheld { // a new attempt has no pieces; Sweep deletes those of the first
		if a, err = d.newAttempt(ctx, epoch, b); err != nil {
			return err
		}
	}
	return a.last(func(tx *transaction) error {
		e, err := tx.batchTx().mayMix(b)
		if err != nil {
			return err
		}
		if err := a.finish(tx, made, 0); err != nil {
			return err
		}
		if err := tx.step(e, b.EpochID, b.Seq); err != nil {
			return err
		}
		withheld := 0
		if made.Withheld {
			withheld = 1
		}
		const next = `UPDATE epochs SET next = $2, destroyed = destroyed + $3 WHERE id = $1`
		if _, err := tx.exec(next, e.id, b.Seq+1, withheld); err != nil {
			return err
		}
		_, err = tx.exec(`DELETE FROM recorded_manifests WHERE epoch = $1 AND seq = $2 AND other IS NULL`, e.id, b.Seq)
		return err
	})
}

// mayMix locks the epoch's row. It returns ErrMade or ErrOver unless b is the epoch's next batch.
func (t batchTx) mayMix(b BatchID) (e epochRow, err error) {
	e, err = t.lock(b.EpochID)
	switch {
	case err != nil:
		return e, err
	case e.next != b.Seq:
		return e, ErrMade
	case e.state >= StateComplete:
		return e, ErrOver
	}
	return e, nil
}

// Fresh says which slots of an upstream batch to take: for each tag that no earlier batch had, one slot.
type Fresh struct {
	known    []Short // tags of earlier batches, sorted
	repeated []Short // tags that several slots of the batch have, sorted
	taken    []bool  // by index in repeated: Take has accepted a slot with this tag
}

// Take reports whether to take a slot with this tag. Call it once per slot.
func (f *Fresh) Take(tag Short) bool {
	if _, found := slices.BinarySearchFunc(f.known, tag, compareShorts); found {
		return false
	}
	i, found := slices.BinarySearchFunc(f.repeated, tag, compareShorts)
	if !found {
		return true
	}
	first := !f.taken[i]
	f.taken[i] = true
	return first
}

func compareShorts(a, b Short) int { return bytes.Compare(a[:], b[:]) }

// admit adds the tags of an upstream batch to the replay set, groupRows per transaction, and returns which are new. It
// sorts tags. Tags that an earlier attempt at the same batch added count as new, because no slot of that attempt has
// left the relay. The tags of a batch number cannot change: [Store.RecordManifest] fixes its manifest.
func (d *batches) admit(ctx context.Context, b BatchID, tags []Short) (f *Fresh, epoch int64, err error) {
	slices.SortFunc(tags, compareShorts)
	f = &Fresh{}
	for i, tag := range tags {
		if i > 0 && tag == tags[i-1] && (i < 2 || tag != tags[i-2]) {
			f.repeated = append(f.repeated, tag)
		}
	}
	f.taken = make([]bool, len(f.repeated))
	distinct := slices.Compact(tags)
	for begun := false; !begun || len(distinct) > 0; begun = true {
		n := min(len(distinct), groupRows)
		var known []Short
		err := d.within(ctx, func(tx *transaction) error {
			e, err := tx.batchTx().mayMix(b)
			if err != nil {
				return err
			}
			epoch = e.id
			known, err = tx.batchTx().admit(e.id, b, distinct[:n])
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		f.known, distinct = append(f.known, known...), distinct[n:]
	}
	return f, epoch, nil
}

// admit adds sorted distinct tags of batch b to the replay set. It returns those that other batches had added.
func (t batchTx) admit(epoch int64, b BatchID, tags []Short) (known []Short, err error) {
	var of Short // what the replay set stores beside each tag of b
	binary.BigEndian.PutUint64(of[:], b.Seq+1)
	before := map[Short]bool{} // true if b added the tag, false if another batch did
	looked := t.seen(b.EpochID, tags, func(tag, receipt Short) { before[tag] = receipt == of })
	if err := t.tx.ask(looked...); err != nil {
		return nil, fmt.Errorf("couldn't look up tags: %w", err)
	}
	added := make([]Short, 0, len(tags))
	for _, tag := range tags {
		switch mine, found := before[tag]; {
		case !found:
			added = append(added, tag)
		case !mine:
			known = append(known, tag)
		}
	}
	const store = `INSERT INTO seen (epoch, hash, receipt) ` + packed +
		`SELECT $3, substr($1::bytea, 8*n + 1, 8), $4::bytea FROM i`
	err = packShorts(added, func(rows []byte, n int) error {
		_, err := t.exec(store, rows, n, epoch, of[:])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't store tags: %w", err)
	}
	return known, nil
}

// epochOf selects an epoch's row ID, in queries that must not create the row.
const epochOf = `(SELECT id FROM epochs WHERE task = $1 AND epoch = $2)`

// Next returns the batch number that Mix makes next.
func (d *batches) Next(ctx context.Context, id EpochID) (next uint64, err error) {
	row := d.read.QueryRowContext(ctx, `SELECT next FROM epochs WHERE task = $1 AND epoch = $2`, id.Task[:], id.Epoch)
	err = row.Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return next, err
}

// Destroyed returns how many withheld batches of the epoch Mix has made.
func (d *batches) Destroyed(ctx context.Context, id EpochID) (n uint64, err error) {
	const query = `SELECT coalesce(max(destroyed), 0) FROM epochs WHERE task = $1 AND epoch = $2`
	if err = d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch).Scan(&n); err != nil {
		return 0, fmt.Errorf("couldn't count destroyed batches: %w", err)
	}
	return n, nil
}

// SealedBelow reports whether this relay has begun and sealed all batches of the epoch with lower numbers.
func (d *batches) SealedBelow(ctx context.Context, b BatchID) (sealed bool, err error) {
	const query = `SELECT COALESCE((SELECT next FROM epochs WHERE task = $1 AND epoch = $2), 0) >= $3
		AND NOT EXISTS (SELECT 1 FROM open WHERE epoch = ` + epochOf + ` AND seq < $3)`
	err = d.read.QueryRowContext(ctx, query, b.Task[:], b.Epoch, b.Seq).Scan(&sealed)
	return sealed, err
}

// Batch returns a sealed batch, or ErrNoBatch. It returns [ErrUncut] until every process has recorded the batch in its
// rollback marks.
func (d *batches) Batch(ctx context.Context, ref BatchID) (*Sealed, error) {
	var b Sealed
	var refers []byte
	const query = `SELECT manifest, bytes, bytes IS NULL FROM batches WHERE epoch = ` + epochOf + ` AND seq = $3`
	if back := d.rollbackLatch.StateRollback(); back != nil {
		return nil, back
	}
	err := d.find(ctx, query, ref, &b.Manifest, &refers, &b.Confirmed)
	if err != nil || b.Confirmed {
		return &b, err
	}
	if err := errors.Join(d.reconciler.cut(ref), d.members.cutByAll(ctx, ref)); err != nil {
		return nil, err
	}
	b.Content, err = d.content(ctx, ref, refers)
	return &b, err
}

// Manifest returns a sealed batch's manifest, and whether the next hop has confirmed the batch. It returns ErrNoBatch
// if there is none.
func (d *batches) Manifest(ctx context.Context, b BatchID) (manifest []byte, confirmed bool, err error) {
	const query = `SELECT manifest, bytes IS NULL FROM batches WHERE epoch = ` + epochOf + ` AND seq = $3`
	err = d.find(ctx, query, b, &manifest, &confirmed)
	return manifest, confirmed, err
}

func (d *batches) find(ctx context.Context, query string, b BatchID, into ...any) error {
	err := d.read.QueryRowContext(ctx, query, b.Task[:], b.Epoch, b.Seq).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoBatch
	}
	if err != nil {
		return fmt.Errorf("couldn't read a batch: %w", err)
	}
	return nil
}

// Confirm deletes the ciphertexts of a sealed batch after the next hop has confirmed it. Confirming twice is no error.
func (d *batches) Confirm(ctx context.Context, b BatchID) error {
	return d.reserve.WithReserve(func() error { return d.confirmOnce(ctx, b) })
}

func (d *batches) confirmOnce(ctx context.Context, b BatchID) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		var refers []byte
		const find = `SELECT bytes FROM batches WHERE epoch = $1 AND seq = $2 AND bytes IS NOT NULL`
		err = tx.row(find, e.id, b.Seq).Scan(&refers)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(refers) < attemptName {
			return errBatch
		}
		const confirm = `UPDATE batches SET bytes = NULL WHERE epoch = $1 AND seq = $2`
		if _, err := tx.exec(confirm, e.id, b.Seq); err != nil {
			return err
		}
		if _, err := tx.exec(`DELETE FROM cuts WHERE epoch = $1 AND seq = $2`, e.id, b.Seq); err != nil {
			return err
		}
		return errors.Join(tx.batchTx().sweep(e.id, b.Seq, refers[:attemptName]), tx.step(e, b.EpochID))
	})
}

// SetSourceConfirmed records that this relay has confirmed batch b's source to the upstream relay, which then deletes
// the source.
func (d *batches) SetSourceConfirmed(ctx context.Context, b BatchID) error {
	return d.reserve.WithReserve(func() error { return d.setSourceConfirmedOnce(ctx, b) })
}

func (d *batches) setSourceConfirmedOnce(ctx context.Context, b BatchID) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		n, err := tx.exec(`UPDATE batches SET confirmed = 1 WHERE confirmed = 0 AND epoch = $1 AND seq = $2`, e.id, b.Seq)
		if err != nil || n == 0 {
			return err
		}
		return tx.step(e, b.EpochID)
	})
}

// UnconfirmedSources lists the mixed batches whose source this relay has not yet confirmed to the upstream relay. It
// first records these batches in this process's rollback marks.
func (d *batches) UnconfirmedSources(ctx context.Context, id EpochID) ([]uint64, error) {
	const query = `SELECT seq FROM batches WHERE epoch = ` + epochOf + ` AND confirmed = 0 ORDER BY seq`
	all, err := collect(ctx, d.read, query, func(rows *sql.Rows) (seq uint64, err error) {
		return seq, rows.Scan(&seq)
	}, id.Task[:], id.Epoch)
	for _, seq := range all {
		err = errors.Join(err, d.reconciler.cut(id.Batch(seq)))
	}
	return all, err
}
