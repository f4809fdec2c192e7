package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/onion"
)

// Seal is that of [Store].
func (d *database) Seal(ctx context.Context, id EpochID, seq uint64, build SealFunc) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil {
			return err
		}
		var submissions uint64
		err = tx.row(`SELECT submissions FROM open WHERE epoch = $1 AND seq = $2`, e.id, seq).Scan(&submissions)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNoBatch
		}
		if err != nil {
			return err
		}
		rows, err := tx.readRows(e.id, id, seq)
		if err != nil {
			return fmt.Errorf("couldn't read slots: %w", err)
		}
		batch, err := build(submissions, rows)
		if err != nil {
			return err
		}
		if err := errors.Join(tx.insertBatch(e.id, id, seq, batch, 1), tx.step(e, id, seq)); err != nil {
			return err
		}
		for _, table := range []string{"slots", "open"} {
			if _, err := tx.exec(`DELETE FROM `+table+` WHERE epoch = $1 AND seq = $2`, e.id, seq); err != nil {
				return err
			}
		}
		return nil
	})
}

// readRows reads and decrypts the rows of an open batch.
func (t *transaction) readRows(epoch int64, id EpochID, seq uint64) ([]Row, error) {
	c, err := t.vault.batchCipher(id, kindRows, seq)
	if err != nil {
		return nil, err
	}
	query := t.engine.sql(`SELECT id, slot FROM slots WHERE epoch = $1 AND seq = $2`)
	return collect(t.ctx, t.tx, query, func(rows *sql.Rows) (r Row, err error) {
		var nonce, in []byte
		if err := rows.Scan(&nonce, &in); err != nil {
			return r, err
		}
		plain, err := decrypt(c, nonce, in)
		if err != nil {
			return r, err
		}
		return Row{int(binary.BigEndian.Uint16(plain)), plain[rowLane:]}, nil
	}, epoch, seq)
}

// insertBatch stores a batch, encrypted; told says whether the relay before knows of it.
func (t *transaction) insertBatch(epoch int64, id EpochID, seq uint64, b *onion.Batch, told int) error {
	raw, err := b.Bytes()
	if err != nil {
		return err
	}
	c, err := t.vault.batchCipher(id, kindSealed, seq)
	if err != nil {
		return err
	}
	raw = encrypt(make([]byte, 0, len(raw)+sealedExtra), c, raw)
	const store = `INSERT INTO batches (epoch, seq, manifest, bytes, told) VALUES ($1, $2, $3, $4, $5)`
	_, err = t.exec(store, epoch, seq, b.Manifest, raw, told)
	if err != nil {
		return fmt.Errorf("couldn't store batch: %w", err)
	}
	return nil
}

// Mix is that of [Store].
func (d *database) Mix(ctx context.Context, id EpochID, seq uint64, tags []Short, build MixFunc) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		switch {
		case err != nil:
			return err
		case e.next != seq:
			return ErrMade
		case e.state >= StateComplete:
			return ErrOver
		}
		fresh, err := tx.admit(e.id, tags)
		if err != nil {
			return err
		}
		batch, err := build(fresh)
		if err != nil {
			return err
		}
		if err := errors.Join(tx.insertBatch(e.id, id, seq, batch, 0), tx.step(e, id, seq)); err != nil {
			return err
		}
		_, err = tx.exec(`UPDATE epochs SET next = $2 WHERE id = $1`, e.id, seq+1)
		return err
	})
}

// admit adds tags to the replay set and says which were not in it.
func (t *transaction) admit(epoch int64, tags []Short) (fresh []bool, err error) {
	known := map[Short]bool{}
	if err := t.seen(epoch, tags, func(tag, _ Short) { known[tag] = true }); err != nil {
		return nil, fmt.Errorf("couldn't look up tags: %w", err)
	}
	fresh = make([]bool, len(tags))
	added := make([]Short, 0, len(tags))
	for i, tag := range tags {
		if fresh[i] = !known[tag]; fresh[i] {
			known[tag] = true
			added = append(added, tag)
		}
	}
	const store = `INSERT INTO seen (epoch, hash) ` + packed + `SELECT $3, substr($1::bytea, 8*n + 1, 8) FROM i`
	err = packShorts(added, func(rows []byte, n int) error {
		_, err := t.exec(store, rows, n, epoch)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't store tags: %w", err)
	}
	return fresh, nil
}

// epochOf selects the row of an epoch in queries that must not create one.
const epochOf = `(SELECT id FROM epochs WHERE task = $1 AND epoch = $2)`

// Next is that of [Store].
func (d *database) Next(ctx context.Context, id EpochID) (next uint64, err error) {
	row := d.read.QueryRowContext(ctx, `SELECT next FROM epochs WHERE task = $1 AND epoch = $2`, id.Task[:], id.Epoch)
	err = row.Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return next, err
}

// SealedBelow is that of [Store].
func (d *database) SealedBelow(ctx context.Context, id EpochID, seq uint64) (sealed bool, err error) {
	const query = `SELECT COALESCE((SELECT next FROM epochs WHERE task = $1 AND epoch = $2), 0) >= $3
		AND NOT EXISTS (SELECT 1 FROM open WHERE epoch = ` + epochOf + ` AND seq < $3)`
	err = d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch, seq).Scan(&sealed)
	return sealed, err
}

// Batch is that of [Store].
func (d *database) Batch(ctx context.Context, id EpochID, seq uint64) (*Sealed, error) {
	var b Sealed
	const query = `SELECT manifest, bytes, bytes IS NULL FROM batches WHERE epoch = ` + epochOf + ` AND seq = $3`
	if back := d.back.Load(); back != nil {
		return nil, back
	}
	err := d.find(ctx, query, id, seq, &b.Manifest, &b.Bytes, &b.Confirmed)
	if err != nil || b.Confirmed {
		return &b, err
	}
	if err := errors.Join(d.cut(id, seq), d.cutByAll(ctx, id, seq)); err != nil {
		return nil, err
	}
	c, err := d.vault.batchCipher(id, kindSealed, seq)
	if err != nil {
		return nil, err
	}
	b.Bytes, err = decrypt(c, b.Bytes[:nonceSize], b.Bytes[nonceSize:])
	return &b, err
}

// Manifest is that of [Store].
func (d *database) Manifest(ctx context.Context, id EpochID, seq uint64) (manifest []byte, confirmed bool, err error) {
	const query = `SELECT manifest, bytes IS NULL FROM batches WHERE epoch = ` + epochOf + ` AND seq = $3`
	err = d.find(ctx, query, id, seq, &manifest, &confirmed)
	return manifest, confirmed, err
}

// find reads from a batch's row, or returns ErrNoBatch.
func (d *database) find(ctx context.Context, query string, id EpochID, seq uint64, into ...any) error {
	err := d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch, seq).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoBatch
	}
	if err != nil {
		return fmt.Errorf("couldn't read a batch: %w", err)
	}
	return nil
}

// update changes a batch's row.
func (d *database) update(ctx context.Context, query string, id EpochID, seq uint64) error {
	return d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil {
			return err
		}
		n, err := tx.exec(query, id.Task[:], id.Epoch, seq)
		if err != nil || n == 0 {
			return err
		}
		const over = `DELETE FROM cuts WHERE epoch = $1 AND seq = $2 AND EXISTS (
			SELECT 1 FROM batches b WHERE b.epoch = $1 AND b.seq = $2 AND b.bytes IS NULL)`
		if _, err := tx.exec(over, e.id, seq); err != nil {
			return err
		}
		return tx.step(e, id)
	})
}

// Confirm is that of [Store].
func (d *database) Confirm(ctx context.Context, id EpochID, seq uint64) error {
	const query = `UPDATE batches SET bytes = NULL WHERE bytes IS NOT NULL AND epoch = ` + epochOf + ` AND seq = $3`
	return d.update(ctx, query, id, seq)
}

// Told is that of [Store].
func (d *database) Told(ctx context.Context, id EpochID, seq uint64) error {
	return d.update(ctx, `UPDATE batches SET told = 1 WHERE told = 0 AND epoch = `+epochOf+` AND seq = $3`, id, seq)
}

// Untold is that of [Store].
func (d *database) Untold(ctx context.Context, id EpochID) ([]uint64, error) {
	const query = `SELECT seq FROM batches WHERE epoch = ` + epochOf + ` AND told = 0 ORDER BY seq`
	all, err := collect(ctx, d.read, query, func(rows *sql.Rows) (seq uint64, err error) {
		return seq, rows.Scan(&seq)
	}, id.Task[:], id.Epoch)
	for _, seq := range all {
		err = errors.Join(err, d.cut(id, seq))
	}
	return all, err
}
