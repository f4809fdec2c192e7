package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/doona-dp/doona/wire/onion"
)

// reports is the part of a store that keeps clients' reports.
type reports struct{ *database }

// Commit sets the verdict of each submission and stores the slots of the accepted ones. It reports whether a batch
// became full.
func (d *reports) Commit(ctx context.Context, group []*Submission) (full bool, err error) {
	if short := d.reserve.Short(); short != nil {
		return false, short
	}
	epochs := map[EpochID]*epochCommit{}
	for _, sub := range group {
		of := epochOfGroup(epochs, sub.ID)
		of.decides = append(of.decides, sub)
		for i := range sub.Others {
			if sub.Others[i].Open {
				epochOfGroup(epochs, sub.Others[i].ID)
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(epochs), EpochID.compare)
	if d.index != nil {
		d.index.mu.Lock()
		defer d.index.mu.Unlock()
		for _, id := range order {
			if len(epochs[id].decides) == 0 {
				continue
			}
			if err := d.index.recall(ctx, d.database, id); err != nil {
				return false, fmt.Errorf("couldn't read tags and clients: %w", err)
			}
		}
	}
	err = d.within(ctx, func(tx *transaction) error {
		full, err = tx.commitTx().commitAll(order, epochs)
		return err
	})
	return full, err
}

// epochCommit is what one transaction of Commit does in one epoch.
type epochCommit struct {
	decides []*Submission // submissions about which the epoch decides

	// The transaction sets the rest.
	row     epochRow
	filling OpenBatch
	fresh   int           // bytes of the filling batch's level 0 runs
	size    uint64        // submissions per batch
	left    uint64        // how many more submissions the epoch can take; only of sets' other tables
	slots   []onion.Lanes // to store: one for each submission
}

func epochOfGroup(epochs map[EpochID]*epochCommit, id EpochID) *epochCommit {
	if epochs[id] == nil {
		epochs[id] = &epochCommit{}
	}
	return epochs[id]
}

// commitAll is Commit for the epochs of a group, in order. It locks all rows before it decides anything: a set's
// submission changes the epochs of several tables, and writers that lock in one order cannot deadlock.
func (t commitTx) commitAll(order []EpochID, epochs map[EpochID]*epochCommit) (full bool, err error) {
	memories := map[EpochID]*memory{}
	for _, id := range order {
		of := epochs[id]
		*of = epochCommit{decides: of.decides}
		if of.row, of.filling, of.fresh, memories[id], err = t.lockAndRead(id, of.decides); err != nil {
			return false, err
		}
	}
	for _, id := range order {
		if of := epochs[id]; len(of.decides) > 0 {
			if err := t.decideEpoch(id, of, memories[id], epochs); err != nil {
				return false, err
			}
		}
	}
	for _, id := range order {
		of := epochs[id]
		if len(of.slots) == 0 {
			continue
		}
		if len(of.decides) == 0 { // otherwise decideEpoch has counted the step
			if err := t.step(of.row, id); err != nil {
				return false, err
			}
		}
		one, err := t.fillEpoch(of)
		if err != nil {
			return false, err
		}
		full = full || one
	}
	return full, nil
}

// decideEpoch decides about the submissions of one epoch. It stores the tags and clients of the accepted ones, and
// assigns their slots to the epochs of their tables.
func (t commitTx) decideEpoch(id EpochID, of *epochCommit, m *memory, epochs map[EpochID]*epochCommit) (err error) {
	group := of.decides
	of.size = group[0].Size
	if t.index != nil && of.row.state == StateOpen {
		m, err = t.index.remember(t.transaction, of.row, id, reportsOf(of.size, of.filling, of.row.next), group)
		if err != nil {
			return err
		}
	}
	taken := m.decide(group, of.row.state > StateOpen, room(of.size, group[0].Batches, of.filling, of.row.next))
	for _, sub := range group {
		for i := range sub.Others {
			sub.Others[i].Stored = false // an earlier attempt at this transaction may have set it
		}
	}
	if len(taken) == 0 {
		return t.ensureMarked(of.row, id)
	}
	if err := t.step(of.row, id); err != nil {
		return err
	}
	for _, sub := range taken {
		of.slots = append(of.slots, sub.Lanes)
		for i := range sub.Others {
			if o := &sub.Others[i]; o.Open {
				o.Stored = epochs[o.ID].take(o)
			}
		}
	}
	return t.learn(of.row, id, m, taken)
}

// take adds the slot of a set's table to the epoch, unless the epoch takes no more.
func (of *epochCommit) take(o *TableSlot) bool {
	if of.size == 0 {
		of.size, of.left = o.Size, room(o.Size, o.Batches, of.filling, of.row.next)
	}
	if of.row.state > StateOpen || len(of.decides) > 0 || uint64(len(of.slots)) >= of.left {
		return false
	}
	of.slots = append(of.slots, onion.Lanes{{o.Slot}})
	return true
}

// fillEpoch stores an epoch's new slots in its batches.
func (t commitTx) fillEpoch(of *epochCommit) (full bool, err error) {
	e, fresh := of.row, of.fresh
	grown, into := assign(of.slots, of.size, of.filling, e.next)
	for i, b := range grown {
		full = full || b.Submissions == of.size
		if b.Seq != of.filling.Seq {
			fresh = 0
		}
		if err := t.fill(e.id, b, fresh, into[i]); err != nil {
			return false, err
		}
	}
	if next := grown[len(grown)-1].Seq + 1; next > e.next {
		err = t.put(`UPDATE epochs SET next = $2 WHERE id = $1`, e.id, next)
	}
	return full, err
}

// lockAndRead locks an epoch's row. It returns the batch that is filling and the bytes of that batch's level 0 runs
// (see runs.go). If tags and clients are in tables, it also returns what the store knows about those of the group.
func (t commitTx) lockAndRead(id EpochID, group []*Submission) (
	e epochRow, filling OpenBatch, fresh int, m *memory, err error,
) {
	m, e.marks = newMemory(), map[string]markRow{}
	asks := []ask{
		{lockEpoch, []any{id.Task[:], id.Epoch}, func(row scanner) error { return row.Scan(&e.id, &e.state, &e.next) }},
		{`SELECT seq, submissions, fresh FROM open WHERE epoch = ` + epochOf + ` ORDER BY seq DESC LIMIT 1`,
			[]any{id.Task[:], id.Epoch},
			func(row scanner) error { return row.Scan(&filling.Seq, &filling.Submissions, &fresh) }},
		{marksOf, []any{id.Task[:], id.Epoch}, e.addMark},
	}
	if t.index == nil {
		tags, clients := make([]Short, len(group)), make([]Short, len(group))
		for i, sub := range group {
			tags[i], clients[i] = sub.Tag, sub.Client
		}
		asks = append(asks, t.seen(id, tags, func(tag, receipt Short) { m.receipts[tag] = receipt.kept() })...)
		asks = append(asks, t.lookUp(t.engine.among("client, submissions", "clients", "client"), id, clients,
			func(row scanner) error {
				var client []byte
				var count uint64
				err := row.Scan(&client, &count)
				if err == nil {
					m.counts[Short(client)] = count
				}
				return err
			})...)
	}
	for i := range asks {
		asks[i].query = t.engine.sql(asks[i].query)
	}
	if err = t.tx.ask(asks...); err == nil && e.id == 0 { // the row does not exist; another process may create it, too
		if _, err = t.lock(id); err == nil {
			return t.lockAndRead(id, group)
		}
	}
	if filling.EpochID = id; filling.Submissions == 0 {
		filling.Seq = e.next
	}
	return e, filling, fresh, m, err
}

// seen returns queries that find which tags are in the replay set. They call found for each.
func (t *transaction) seen(id EpochID, tags []Short, found func(tag, receipt Short)) []ask {
	return t.lookUp(t.engine.among("hash, receipt", "seen", "hash"), id, tags, func(row scanner) error {
		var tag, receipt []byte
		if err := row.Scan(&tag, &receipt); err != nil {
			return err
		}
		var r Short
		copy(r[:], receipt)
		found(Short(tag), r)
		return nil
	})
}

// lookUp returns queries that look up keys, in groups: see packed.
func (t *transaction) lookUp(query string, id EpochID, keys []Short, scan func(row scanner) error) (asks []ask) {
	packShorts(keys, func(packed []byte, n int) error {
		asks = append(asks, ask{query, []any{packed, n, id.Task[:], id.Epoch}, scan})
		return nil
	})
	return asks
}

func (t commitTx) learn(e epochRow, id EpochID, m *memory, taken []*Submission) error {
	if t.index != nil {
		return t.index.learn(t.transaction, e, id, taken)
	}
	return t.learnRows(e.id, m, taken)
}

// learnRows is learn for an engine that keeps tags and clients in tables.
func (t commitTx) learnRows(epoch int64, m *memory, taken []*Submission) error {
	const tags = `INSERT INTO seen (epoch, hash, receipt) ` + packed + `
		SELECT $3, substr($1::bytea, 16*n + 1, 8), substr($1::bytea, 16*n + 9, 8) FROM i`
	err := pack(len(taken), 16, func(to []byte, i int) []byte {
		return append(append(to, taken[i].Tag[:]...), taken[i].Receipt[:]...)
	}, func(rows []byte, n int) error {
		return t.put(tags, rows, n, epoch)
	})
	if err != nil {
		return fmt.Errorf("couldn't store tags: %w", err)
	}
	return t.count(epoch, m, taken)
}

// count stores the new submission counts of clients. One statement stores all clients with the same count; there are at
// most as many counts as the quota.
func (t commitTx) count(epoch int64, m *memory, taken []*Submission) error {
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
			return t.put(store, rows, n, epoch, count)
		})
		if err != nil {
			return fmt.Errorf("couldn't count clients: %w", err)
		}
	}
	return nil
}

// fill stores the slots of accepted submissions as runs, and the new size of their batch. fresh is the size of the
// batch's earlier level 0 runs, in bytes.
func (t commitTx) fill(epoch int64, b OpenBatch, fresh int, subs []onion.Lanes) error {
	c, err := t.vault.batchCipher(kindRows, b.BatchID)
	if err != nil {
		return err
	}
	rows := rowsOf(subs)
	fresh, err = t.runsTx().storeRows(runTarget{epoch, b.Seq, c, func(int) runMerger { return &slotRun{} }}, fresh,
		len(rows), rowLane+len(rows[0].Slot), func(from, to int) []byte { return packRows(rows[from:to]) })
	if err != nil {
		return err
	}
	return t.put(`INSERT INTO open (epoch, seq, submissions, fresh) VALUES ($1, $2, $3, $4)
		ON CONFLICT (epoch, seq) DO UPDATE SET submissions = excluded.submissions, fresh = excluded.fresh`,
		epoch, b.Seq, b.Submissions, fresh)
}
