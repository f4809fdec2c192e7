package store

import (
	"crypto/cipher"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"
)

// runsVersion is the first version of the schema that keeps slots in runs, and in SQLite names. Before, each had a row
// of its own: in the table slots an encrypted lane and slot under the nonce, in seen a tag with its receipt, and in
// clients a client with the number of its submissions.
const runsVersion = 8

// adopt moves what an older store has into runs.
func (t *transaction) adopt() error {
	if err := t.adoptSlots(); err != nil || t.index == nil {
		return err
	}
	return t.adoptNames()
}

// adoptNames moves the names of open epochs into runs, and drops the table of clients.
func (t *transaction) adoptNames() error {
	type of struct {
		EpochID
		epoch int64
	}
	const list = `SELECT task, epoch, id FROM epochs e WHERE state = 0
		AND EXISTS (SELECT 1 FROM clients c WHERE c.epoch = e.id)`
	all, err := collect(t.ctx, t.tx, list, func(rows *sql.Rows) (e of, err error) {
		var id []byte
		err = rows.Scan(&id, &e.Epoch, &e.epoch)
		copy(e.Task[:], id)
		return e, err
	})
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := t.adoptEpoch(e.epoch, e.EpochID); err != nil {
			return err
		}
	}
	_, err = t.exec(`DROP TABLE clients`)
	return err
}

// adoptEpoch moves an epoch's names into runs.
func (t *transaction) adoptEpoch(epoch int64, id EpochID) error {
	c, err := t.vault.nameCipher(id)
	if errors.Is(err, ErrDestroyed) {
		return nil
	}
	if err != nil {
		return err
	}
	const tags = `SELECT hash, receipt FROM seen WHERE epoch = $1 AND hash > $2 ORDER BY hash LIMIT $3`
	err = t.adoptKind(epoch, c, tags, func(rows *sql.Rows, into *nameRun) (tag []byte, err error) {
		var receipt []byte
		if err = rows.Scan(&tag, &receipt); err == nil {
			into.tags = append(into.tags, newTagName(Short(tag), Short(receipt).kept()))
		}
		return tag, err
	})
	if err != nil {
		return err
	}
	const clients = `SELECT client, submissions FROM clients WHERE epoch = $1 AND client > $2 ORDER BY client LIMIT $3`
	err = t.adoptKind(epoch, c, clients, func(rows *sql.Rows, into *nameRun) (client []byte, err error) {
		var submissions int
		if err = rows.Scan(&client, &submissions); err == nil {
			into.clients = append(into.clients, slices.Repeat([]Short{Short(client)}, submissions)...)
		}
		return client, err
	})
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM seen WHERE epoch = $1`, epoch)
	return err
}

// adoptKind makes runs of level 1 of the rows of a query, some of them at a time: all in one could be more than a value
// may have. scan adds a row to a run, and returns its key, in the order of which they come.
func (t *transaction) adoptKind(
	epoch int64, c cipher.AEAD, query string, scan func(rows *sql.Rows, into *nameRun) (key []byte, err error),
) error {
	for last := []byte{}; ; {
		n := &nameRun{}
		_, err := collect(t.ctx, t.tx, query, func(rows *sql.Rows) (_ struct{}, err error) {
			last, err = scan(rows, n)
			return struct{}{}, err
		}, epoch, last, groupRows)
		if err != nil || len(n.tags)+len(n.clients) == 0 {
			return err
		}
		if _, err := t.putRun(epoch, nameRuns, 1, c, n.pack()); err != nil {
			return err
		}
	}
}

// adoptSlots moves the slots of open batches into runs, and drops their table.
func (t *transaction) adoptSlots() error {
	type batch struct {
		OpenBatch
		epoch int64
	}
	const list = `SELECT task, e.epoch, seq, e.id FROM open o JOIN epochs e ON e.id = o.epoch`
	all, err := collect(t.ctx, t.tx, list, func(rows *sql.Rows) (b batch, err error) {
		var id []byte
		err = rows.Scan(&id, &b.Epoch, &b.Seq, &b.epoch)
		copy(b.Task[:], id)
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
	c, err := t.vault.batchCipher(kindRows, b.BatchID)
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
