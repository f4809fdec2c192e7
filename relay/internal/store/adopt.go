package store

import (
	"database/sql"
	"encoding/binary"
	"errors"
)

// runsVersion is the first version of the schema that keeps slots in runs. Before, each had a row of its own in the
// table slots: an encrypted lane and slot under the nonce.
const runsVersion = 8

// adoptSlots moves the slots of open batches into runs, and drops their table.
func (t *transaction) adoptSlots() error {
	type batch struct {
		OpenBatch
		epoch int64
	}
	const list = `SELECT task, e.epoch, seq, e.id FROM open o JOIN epochs e ON e.id = o.epoch`
	all, err := collect(t.ctx, t.tx, list, func(rows *sql.Rows) (b batch, err error) {
		var id []byte
		err = rows.Scan(&id, &b.ID.Epoch, &b.Seq, &b.epoch)
		copy(b.ID.Task[:], id)
		return b, err
	})
	if err != nil {
		return err
	}
	for _, b := range all {
		if err := t.adoptBatch(b.epoch, b.OpenBatch); err != nil {
			return err
		}
	}
	_, err = t.exec(`DROP TABLE slots`)
	return err
}

// adoptBatch makes runs of level 1 of a batch's slots, which stand in the order of their random nonces. Where the
// store was set back there is no key for them.
func (t *transaction) adoptBatch(epoch int64, b OpenBatch) error {
	c, err := t.vault.batchCipher(b.ID, kindRows, b.Seq)
	if errors.Is(err, ErrDestroyed) {
		return nil
	}
	if err != nil {
		return err
	}
	const query = `SELECT id, slot FROM slots WHERE epoch = $1 AND seq = $2 AND id > $3 ORDER BY id LIMIT $4`
	for last := []byte{}; ; {
		rows, err := collect(t.ctx, t.tx, query, func(rows *sql.Rows) (Row, error) {
			var in []byte
			if err := rows.Scan(&last, &in); err != nil {
				return Row{}, err
			}
			plain, err := decrypt(c, last, in)
			if err != nil {
				return Row{}, err
			}
			return Row{int(binary.BigEndian.Uint16(plain)), plain[rowLane:]}, nil
		}, epoch, b.Seq, last, groupRows)
		if err != nil || len(rows) == 0 {
			return err
		}
		if _, err := t.putRun(epoch, b.Seq, 1, c, packRows(rows)); err != nil {
			return err
		}
	}
}
