package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/durable"
)

// epochs is the part of a store that keeps each epoch's state.
type epochs struct {
	*database
	members *members
	changes durable.Coalescer[*stateChange]
}

// Progress lists all epochs that have a row, in the order of their rows. It runs three queries outside of a
// transaction: epochs, open batches, sealed batches. A batch that is sealed meanwhile may appear in Open and in Held,
// but is never missing. Progress omits batches from number Next on, which began after the first query.
func (d *epochs) Progress(ctx context.Context) ([]Progress, error) {
	index := map[int64]int{}
	const epochs = `SELECT id, task, epoch, state, next FROM epochs ORDER BY id`
	all, err := collect(ctx, d.read, epochs, func(rows *sql.Rows) (p Progress, err error) {
		var id int64
		var task []byte
		if err := rows.Scan(&id, &task, &p.ID.Epoch, &p.State, &p.Next); err != nil {
			return p, err
		}
		copy(p.ID.Task[:], task)
		index[id] = len(index)
		return p, nil
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list epochs: %w", err)
	}
	each := func(query string, add func(p *Progress, seq, n uint64)) error {
		_, err := collect(ctx, d.read, query, func(rows *sql.Rows) (_ struct{}, err error) {
			var id int64
			var seq, n uint64
			if err := rows.Scan(&id, &seq, &n); err != nil {
				return struct{}{}, err
			}
			if i, ok := index[id]; ok && seq < all[i].Next {
				add(&all[i], seq, n)
			}
			return struct{}{}, nil
		})
		return err
	}
	err = each(`SELECT epoch, seq, submissions FROM open ORDER BY epoch, seq`, func(p *Progress, seq, n uint64) {
		p.Open = append(p.Open, OpenBatch{p.ID.Batch(seq), n})
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list open batches: %w", err)
	}
	const held = `SELECT epoch, seq, 0 FROM batches WHERE bytes IS NOT NULL ORDER BY epoch, seq`
	err = each(held, func(p *Progress, seq, _ uint64) {
		p.Held = append(p.Held, seq)
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list sealed batches: %w", err)
	}
	return all, nil
}

// stateChange is a request to raise an epoch's state.
type stateChange struct {
	id  EpochID
	to  State
	end []byte // for StateComplete: the signed end to store; nil for none
	err error  // its result
}

// Advance raises an epoch's state. StateErased deletes its replay set and client rows. StateExpired deletes its
// batches, confirmed or not, its findings, manifests and tallies. Advance empties large tables first, in small
// transactions: no other writer waits long, and a full disk needs only [EraseRoom] bytes.
func (d *epochs) Advance(ctx context.Context, id EpochID, to State) error {
	return d.reserve.WithReserve(func() error { return d.advanceOnce(ctx, id, to) })
}

func (d *epochs) advanceOnce(ctx context.Context, id EpochID, to State) error {
	if err := d.deleteBulk(ctx, id, to); err != nil {
		return err
	}
	return d.changeState(ctx, &stateChange{id: id, to: to})
}

// bulkTables are the tables that may have more rows of one epoch than one transaction should delete.
var bulkTables = []struct {
	at               State // from this state on, the rows are obsolete
	table, key, only string
	most             func() int // maximum number of rows that one transaction deletes
}{
	{StateErased, "seen", "hash", "", func() int { return 8 * groupRows }},
	{StateErased, "runs", "id", " AND level > 0", func() int { return 1 }},
	{StateExpired, "pieces", "seq, made, number", "", piecesAtOnce},
}

// deleteBulk deletes rows that are obsolete in state to, until one transaction can delete the rest.
func (d *epochs) deleteBulk(ctx context.Context, id EpochID, to State) error {
	for _, t := range bulkTables {
		some := `SELECT ` + t.key + ` FROM ` + t.table + ` WHERE epoch = $1` + t.only + ` LIMIT $2`
		for more := to >= t.at; more; {
			err := d.within(ctx, func(tx *transaction) error {
				e, err := tx.lock(id)
				if more = err == nil && e.state < to; !more {
					return err
				}
				n := 0
				err = tx.row(`SELECT COUNT(*) FROM (`+some+`) AS rest`, e.id, t.most()+1).Scan(&n)
				if more = err == nil && n > t.most(); more {
					_, err = tx.exec(`DELETE FROM `+t.table+` WHERE epoch = $1 AND (`+t.key+`) IN (`+some+`)`, e.id,
						t.most())
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("couldn't delete the rest of an epoch: %w", err)
			}
		}
	}
	return nil
}

// Complete raises an epoch to StateComplete and stores its signed end, unless the epoch is complete already.
func (d *epochs) Complete(ctx context.Context, id EpochID, end []byte) error {
	return d.reserve.WithReserve(func() error {
		return d.changeState(ctx, &stateChange{id: id, to: StateComplete, end: end})
	})
}

// changeState raises an epoch's state. Concurrent calls share a transaction and the write of the secret's rollback
// mark, which takes as long. If a shared transaction fails, each epoch gets its own: it needs less space on a full
// disk, and one failure does not stop the others.
func (d *epochs) changeState(ctx context.Context, one *stateChange) error {
	err := d.changes.Do(func(all []*stateChange) error {
		slices.SortFunc(all, func(a, b *stateChange) int { return cmp.Or(a.id.compare(b.id), cmp.Compare(a.to, b.to)) })
		for len(all) > 0 {
			n, err := d.changeStates(ctx, all)
			if err != nil && len(all) > 1 {
				n, err = d.changeStates(ctx, all[:1])
			}
			if err != nil {
				n, all[0].err = 1, err
			}
			all = all[n:]
		}
		return nil
	}, one)
	return cmp.Or(err, one.err)
}

// changeTime limits how long one transaction keeps adding epochs. An epoch may have many rows, and reports wait
// meanwhile.
const changeTime = 200 * time.Millisecond

// changeStates changes the states of the first n epochs in one transaction and returns n.
func (d *epochs) changeStates(ctx context.Context, all []*stateChange) (n int, err error) {
	err = d.within(ctx, func(tx *transaction) error {
		begun := time.Now()
		for n = 0; n < len(all) && (n == 0 || time.Since(begun) < changeTime); n++ {
			if err := tx.epochTx().changeState(all[n]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, t := range all[:n] {
		if t.to > StateOpen {
			d.index.forget(t.id)
		}
	}
	return n, nil
}

func (t epochTx) changeState(to *stateChange) error {
	e, err := t.lock(to.id)
	if err != nil || e.state >= to.to {
		return err
	}
	for _, table := range t.obsolete(to.to) {
		if _, err := t.exec(`DELETE FROM `+table+` WHERE epoch = $1`, e.id); err != nil {
			return err
		}
	}
	if to.end != nil {
		if _, err := t.exec(`INSERT INTO ends (epoch, bytes) VALUES ($1, $2)`, e.id, to.end); err != nil {
			return err
		}
	}
	if _, err = t.exec(`UPDATE epochs SET state = $2 WHERE id = $1`, e.id, int(to.to)); err != nil {
		return err
	}
	return t.step(e, to.id)
}

// End returns the signed end that Complete stored for an epoch; nil if there is none.
func (d *epochs) End(ctx context.Context, id EpochID) (end []byte, err error) {
	const query = `SELECT bytes FROM ends WHERE epoch = ` + epochOf
	err = d.read.QueryRowContext(ctx, query, id.Task[:], id.Epoch).Scan(&end)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the end of an epoch: %w", err)
	}
	return end, nil
}

// EndAll ends epochs by the operator's command after a state rollback. Afterwards the store works again; no other
// method changes a store that was rolled back. EndAll deletes all rows about the epochs, raises them to StateEnded, and
// records a finding for each that had not expired. It completely removes the epochs in strange, which their tasks do
// not have.
func (d *epochs) EndAll(ctx context.Context, ids, strange []EpochID, why Reason) error {
	d.members.forget()
	err := d.within(ctx, func(tx *transaction) error {
		if err := tx.memberTx().reset(); err != nil {
			return fmt.Errorf("couldn't make other processes rejoin: %w", err)
		}
		for _, id := range ids {
			if err := tx.epochTx().end(id, why); err != nil {
				return fmt.Errorf("couldn't end epoch %d: %w", id.Epoch, err)
			}
		}
		for _, id := range strange {
			if err := tx.epochTx().remove(id); err != nil {
				return fmt.Errorf("couldn't remove epoch %d: %w", id.Epoch, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		d.index.forget(id)
	}
	return nil
}

func (t epochTx) end(id EpochID, why Reason) error {
	e, err := t.lock(id)
	if err != nil || e.state == StateEnded {
		return err
	}
	for _, table := range append(t.obsolete(StateEnded), "ends", "rollback_marks") {
		if _, err := t.exec(`DELETE FROM `+table+` WHERE epoch = $1`, e.id); err != nil {
			return err
		}
	}
	if e.state < StateExpired {
		if _, err := t.note(e.id, e.next, why); err != nil {
			return err
		}
	}
	_, err = t.exec(`UPDATE epochs SET state = $2 WHERE id = $1`, e.id, int(StateEnded))
	return err
}

// remove deletes all rows of an epoch that its task does not have.
func (t epochTx) remove(id EpochID) error {
	var row int64
	err := t.row(`SELECT id FROM epochs WHERE task = $1 AND epoch = $2`, id.Task[:], id.Epoch).Scan(&row)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, table := range append(t.obsolete(StateEnded), "ends", "rollback_marks") {
		if _, err := t.exec(`DELETE FROM `+table+` WHERE epoch = $1`, row); err != nil {
			return err
		}
	}
	_, err = t.exec(`DELETE FROM epochs WHERE id = $1`, row)
	return err
}

// obsolete lists the tables in which an epoch has no rows in this state.
func (t epochTx) obsolete(at State) (tables []string) {
	if at >= StateEnded {
		tables = append(tables, "open")
	}
	if at >= StateErased {
		tables = append(tables, "seen", "runs")
		if t.index == nil {
			tables = append(tables, "clients")
		}
	}
	if at >= StateExpired {
		tables = append(tables, "batches", "findings", "tallies", "recorded_manifests", "cuts", "pieces", "sweeps")
	}
	return tables
}
