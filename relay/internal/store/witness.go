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

// ErrEquivocation is returned where the relay before has signed two batches of one number.
var ErrEquivocation = errors.New("the relay before has signed two batches of one number")

// Equivocation is the evidence: two manifests of one number, each with a good signature.
type Equivocation struct {
	ID            EpochID
	Seq           uint64
	First, Second onion.SignedManifest
}

// Witness is that of [Store].
func (d *database) Witness(ctx context.Context, id EpochID, seq uint64, s *onion.SignedManifest) error {
	raw, err := codec.Marshal(s)
	if err != nil {
		return err
	}
	second := false
	err = d.within(ctx, func(tx *transaction) error {
		e, err := tx.lock(id)
		if err != nil {
			return err
		}
		const store = `INSERT INTO witnessed (epoch, seq, signed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
		n, err := tx.exec(store, e.id, seq, raw)
		if err == nil && n > 0 {
			err = tx.step(e, id)
		}
		if err != nil || n > 0 {
			return err
		}
		var kept []byte
		err = tx.row(`SELECT signed FROM witnessed WHERE epoch = $1 AND seq = $2`, e.id, seq).Scan(&kept)
		if err != nil {
			return err
		}
		var first onion.SignedManifest
		if err := codec.Unmarshal(kept, &first); err != nil {
			return err
		}
		if second = !bytes.Equal(first.Manifest, s.Manifest); !second {
			return nil
		}
		const other = `UPDATE witnessed SET other = $3 WHERE epoch = $1 AND seq = $2 AND other IS NULL`
		if n, err := tx.exec(other, e.id, seq, raw); err != nil || n == 0 {
			return err
		}
		return tx.step(e, id)
	})
	if err != nil {
		return fmt.Errorf("couldn't keep a manifest: %w", err)
	}
	if second {
		return ErrEquivocation
	}
	return nil
}

// Witnessed is that of [Store].
func (d *database) Witnessed(ctx context.Context, id EpochID) (next uint64, err error) {
	const query = `SELECT coalesce(max(seq) + 1, 0) FROM witnessed WHERE epoch = ` + epochOf
	err = d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("couldn't read the manifests: %w", err)
	}
	return next, nil
}

// Equivocations is that of [Reader].
func (d *database) Equivocations(ctx context.Context) ([]Equivocation, error) {
	out, err := collect(ctx, d.read, `SELECT task, e.epoch, seq, signed, other
		FROM witnessed w JOIN epochs e ON e.id = w.epoch WHERE other IS NOT NULL ORDER BY e.epoch, seq`,
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
