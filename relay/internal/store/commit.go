package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Commit is that of [Store].
func (d *database) Commit(ctx context.Context, group []*Submission) (full bool, err error) {
	epochs := map[EpochID][]*Submission{}
	for _, sub := range group {
		epochs[sub.ID] = append(epochs[sub.ID], sub)
	}
	order := slices.SortedFunc(maps.Keys(epochs), func(a, b EpochID) int {
		return cmp.Or(bytes.Compare(a.Task[:], b.Task[:]), cmp.Compare(a.Epoch, b.Epoch))
	})
	if d.index != nil {
		d.index.mu.Lock()
		defer d.index.mu.Unlock()
		for _, id := range order {
			if err := d.index.recall(ctx, d, id); err != nil {
				return false, fmt.Errorf("couldn't read names: %w", err)
			}
		}
	}
	err = d.within(ctx, func(tx *transaction) error {
		full = false
		for _, id := range order {
			one, err := tx.commitEpoch(id, epochs[id])
			if err != nil {
				return err
			}
			full = full || one
		}
		return nil
	})
	return full, err
}

// commitEpoch is Commit for submissions of one epoch.
func (t *transaction) commitEpoch(id EpochID, group []*Submission) (full bool, err error) {
	e, err := t.lock(id)
	if err != nil {
		return false, err
	}
	filling, fresh := OpenBatch{id, e.next, 0}, 0
	latest := t.row(`SELECT seq, submissions, fresh FROM open WHERE epoch = $1 ORDER BY seq DESC LIMIT 1`, e.id)
	err = latest.Scan(&filling.Seq, &filling.Submissions, &fresh)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	m, err := t.remember(e, id, reportsOf(group[0].Size, filling, e.next), group)
	if err != nil {
		return false, err
	}
	taken := m.decide(group, e.state > StateOpen, room(group[0].Size, group[0].Batches, filling, e.next))
	if len(taken) == 0 {
		return false, t.settled(e, id)
	}
	if err := t.step(e, id); err != nil {
		return false, err
	}
	if err := t.learn(e, id, m, taken); err != nil {
		return false, err
	}
	grown, into := place(taken, filling, e.next)
	for i, b := range grown {
		full = full || b.Submissions == taken[0].Size
		if b.Seq != filling.Seq {
			fresh = 0
		}
		if err := t.fill(e.id, b, fresh, into[i]); err != nil {
			return false, err
		}
	}
	if next := grown[len(grown)-1].Seq + 1; next > e.next {
		_, err = t.exec(`UPDATE epochs SET next = $2 WHERE id = $1`, e.id, next)
	}
	return full, err
}

// remember looks up what the store knows about the tags and clients of a group, in an epoch of so many reports.
func (t *transaction) remember(e epochRow, id EpochID, reports uint64, group []*Submission) (*memory, error) {
	switch {
	case e.state > StateOpen: // it takes no more
		return newMemory(), nil
	case t.index != nil:
		return t.index.remember(t, e, id, reports, group)
	}
	return t.rememberRows(e.id, group)
}

// rememberRows is remember where names are in tables.
func (t *transaction) rememberRows(epoch int64, group []*Submission) (*memory, error) {
	tags, clients := make([]Short, len(group)), make([]Short, len(group))
	for i, sub := range group {
		tags[i], clients[i] = sub.Tag, sub.Client
	}
	m := newMemory()
	err := t.seen(epoch, tags, func(tag, receipt Short) { m.receipts[tag] = receipt.kept() })
	if err != nil {
		return nil, err
	}
	query := t.engine.among("client, submissions", "clients", "client")
	return m, t.lookUp(query, epoch, clients, func(rows *sql.Rows) error {
		var client []byte
		var count uint64
		if err := rows.Scan(&client, &count); err != nil {
			return err
		}
		m.counts[Short(client)] = count
		return nil
	})
}

// seen calls found with those of the tags that are in the replay set.
func (t *transaction) seen(epoch int64, tags []Short, found func(tag, receipt Short)) error {
	return t.lookUp(t.engine.among("hash, receipt", "seen", "hash"), epoch, tags, func(rows *sql.Rows) error {
		var tag, receipt []byte
		if err := rows.Scan(&tag, &receipt); err != nil {
			return err
		}
		var r Short
		copy(r[:], receipt)
		found(Short(tag), r)
		return nil
	})
}

// lookUp runs a packed query for keys and calls scan for every row.
func (t *transaction) lookUp(query string, epoch int64, keys []Short, scan func(rows *sql.Rows) error) error {
	each := func(rows *sql.Rows) (struct{}, error) { return struct{}{}, scan(rows) }
	return packShorts(keys, func(packed []byte, n int) error {
		_, err := collect(t.ctx, t.tx, query, each, packed, n, epoch)
		return err
	})
}

// learn stores the tags, receipts and clients of accepted submissions.
func (t *transaction) learn(e epochRow, id EpochID, m *memory, taken []*Submission) error {
	if t.index != nil {
		return t.index.learn(t, e, id, taken)
	}
	return t.learnRows(e.id, m, taken)
}

// learnRows is learn where names are in tables.
func (t *transaction) learnRows(epoch int64, m *memory, taken []*Submission) error {
	const tags = `INSERT INTO seen (epoch, hash, receipt) ` + packed + `
		SELECT $3, substr($1::bytea, 16*n + 1, 8), substr($1::bytea, 16*n + 9, 8) FROM i`
	err := pack(len(taken), 16, func(to []byte, i int) []byte {
		return append(append(to, taken[i].Tag[:]...), taken[i].Receipt[:]...)
	}, func(rows []byte, n int) error {
		_, err := t.exec(tags, rows, n, epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("couldn't store tags: %w", err)
	}
	return t.count(epoch, m, taken)
}

// count stores how many submissions the clients of accepted ones have now: in one statement for
// each count, of which there are at most the quota.
func (t *transaction) count(epoch int64, m *memory, taken []*Submission) error {
	const store = `INSERT INTO clients (epoch, client, submissions) ` + packed + `
		SELECT $3, substr($1::bytea, 8*n + 1, 8), $4 FROM i WHERE true
		ON CONFLICT (epoch, client) DO UPDATE SET submissions = excluded.submissions`
	clients := map[uint64]map[Short]bool{}
	for _, sub := range taken {
		count := m.counts[sub.Client]
		if clients[count] == nil {
			clients[count] = map[Short]bool{}
		}
		clients[count][sub.Client] = true
	}
	for count, of := range clients {
		list := slices.Collect(maps.Keys(of))
		err := packShorts(list, func(rows []byte, n int) error {
			_, err := t.exec(store, rows, n, epoch, count)
			return err
		})
		if err != nil {
			return fmt.Errorf("couldn't count clients: %w", err)
		}
	}
	return nil
}

// fill stores the slots of accepted submissions, in runs, and the new size of their batch. fresh is what its runs of
// level 0 take so far.
func (t *transaction) fill(epoch int64, b OpenBatch, fresh int, subs []*Submission) error {
	c, err := t.vault.batchCipher(b.ID, kindRows, b.Seq)
	if err != nil {
		return err
	}
	rows := rowsOf(subs)
	fresh, err = t.bring(brought{epoch, b.Seq, c, joinSlots}, fresh, len(rows), rowLane+len(rows[0].Slot),
		func(from, to int) []byte { return packRows(rows[from:to]) })
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO open (epoch, seq, submissions, fresh) VALUES ($1, $2, $3, $4)
		ON CONFLICT (epoch, seq) DO UPDATE SET submissions = excluded.submissions, fresh = excluded.fresh`,
		epoch, b.Seq, b.Submissions, fresh)
	return err
}
