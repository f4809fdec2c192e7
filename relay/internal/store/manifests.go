package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
)

// ErrEquivocation means that the upstream relay signed two different batches with one number.
var ErrEquivocation = errors.New("the upstream relay signed two batches with one number")

// Equivocation is the evidence: two manifests with the same number, each with a valid signature.
type Equivocation struct {
	ID            EpochID
	Seq           uint64
	First, Second onion.SignedManifest
}

// RecordManifest stores the upstream relay's signed manifest of a batch, before the first slot of the batch is read. If
// a different manifest is stored, it stores both and returns ErrEquivocation. If Mix has made batch b, it returns
// ErrMade: the manifest of b contains the upstream manifest.
func (d *batches) RecordManifest(ctx context.Context, b BatchID, s *onion.SignedManifest) error {
	return d.reserve.WithReserve(func() error { return d.recordManifestOnce(ctx, b, s) })
}

func (d *batches) recordManifestOnce(ctx context.Context, b BatchID, s *onion.SignedManifest) error {
	raw, err := codec.Marshal(s)
	if err != nil {
		return err
	}
	var found error // unlike err, does not roll back the transaction
	err = d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(b.EpochID)
		if err != nil {
			return err
		}
		written := false
		if b.Seq < e.next {
			written, found, err = tx.batchTx().recordForMade(e.id, b.Seq, s, raw)
		} else {
			written, found, err = tx.batchTx().recordManifest(e.id, b.Seq, s, raw)
		}
		if err != nil || !written {
			return err
		}
		return tx.step(e, b.EpochID)
	})
	if err != nil {
		return fmt.Errorf("couldn't store a manifest: %w", err)
	}
	return found
}

// recordManifest implements RecordManifest if Mix has not made the batch. It reports whether it has written anything.
func (t batchTx) recordManifest(epoch int64, seq uint64, s *onion.SignedManifest, raw []byte) (written bool, found,
	err error) {
	const store = `INSERT INTO recorded_manifests (epoch, seq, signed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	if n, err := t.exec(store, epoch, seq, raw); err != nil || n > 0 {
		return n > 0, nil, err
	}
	var kept []byte
	err = t.row(`SELECT signed FROM recorded_manifests WHERE epoch = $1 AND seq = $2`, epoch, seq).Scan(&kept)
	if err != nil {
		return false, nil, err
	}
	var first onion.SignedManifest
	if err := codec.Unmarshal(kept, &first); err != nil || bytes.Equal(first.Manifest, s.Manifest) {
		return false, nil, err
	}
	const other = `UPDATE recorded_manifests SET other = $3 WHERE epoch = $1 AND seq = $2 AND other IS NULL`
	n, err := t.exec(other, epoch, seq, raw)
	return n > 0, ErrEquivocation, err
}

// recordForMade implements RecordManifest if another process has made the batch, whose manifest contains the first
// upstream manifest.
func (t batchTx) recordForMade(epoch int64, seq uint64, s *onion.SignedManifest, raw []byte) (written bool, found,
	err error) {
	var kept []byte
	err = t.row(`SELECT manifest FROM batches WHERE epoch = $1 AND seq = $2`, epoch, seq).Scan(&kept)
	if errors.Is(err, sql.ErrNoRows) { // the batch has expired
		return false, ErrMade, nil
	}
	var made onion.Manifest
	if err == nil {
		err = codec.Unmarshal(kept, &made)
	}
	if err != nil {
		return false, nil, err
	}
	first, err := onion.ParseSigned(made.Source)
	if err != nil || bytes.Equal(first.Manifest, s.Manifest) {
		return false, ErrMade, err
	}
	const both = `INSERT INTO recorded_manifests (epoch, seq, signed, other) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	n, err := t.exec(both, epoch, seq, made.Source, raw)
	return n > 0, ErrEquivocation, err
}

// NextManifest returns the number after the highest batch number with a manifest; 0 if there is none.
func (d *batches) NextManifest(ctx context.Context, id EpochID) (next uint64, err error) {
	const query = `SELECT coalesce(max(next), 0) FROM (SELECT next FROM epochs WHERE task = $1 AND epoch = $2
		UNION ALL SELECT seq + 1 FROM recorded_manifests WHERE epoch = ` + epochOf + `) AS signed`
	err = d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("couldn't read the manifests: %w", err)
	}
	return next, nil
}

// Equivocations lists the batch numbers for which RecordManifest has seen two manifests.
func (d *batches) Equivocations(ctx context.Context) ([]Equivocation, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, seq, signed, other
		FROM recorded_manifests w JOIN epochs e ON e.id = w.epoch WHERE other IS NOT NULL ORDER BY e.epoch, seq`,
		func(rows *sql.Rows) (found Equivocation, err error) {
			var task, first, second []byte
			if err := rows.Scan(&task, &found.ID.Epoch, &found.Seq, &first, &second); err != nil {
				return found, err
			}
			copy(found.ID.Task[:], task)
			return found, errors.Join(codec.Unmarshal(first, &found.First), codec.Unmarshal(second, &found.Second))
		})
	if err != nil {
		return nil, fmt.Errorf("couldn't list equivocations: %w", err)
	}
	return out, nil
}
