package relay

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/randomizer"
)

// The statements of commit, in the order a submission meets them.
const (
	insertEnvelope = `INSERT OR IGNORE INTO seen (epoch, hash, receipt) VALUES (?, ?, ?)`
	insertTag      = `INSERT OR IGNORE INTO seen (epoch, hash) VALUES (?, ?)`
	countClient    = `INSERT INTO clients (epoch, client, submissions) VALUES (?, ?, 1)
		ON CONFLICT DO UPDATE SET submissions = submissions + 1 WHERE submissions < ?`
	insertSlot = `INSERT INTO slots (epoch, seq, id, lane, slot) VALUES (?, ?, ?, ?, ?)`
)

// grouping is the state of one commit.
type grouping struct {
	tx     *sql.Tx
	epochs map[epochID]*filling
	slots  []placed

	envelope, tag, client *sql.Stmt
}

// filling is where an epoch's submissions go.
type filling struct {
	id     int64
	closed bool
	batch  openBatch
	dirty  []openBatch // batches whose count has changed, but for the last
}

// placed is a slot with the batch it goes to.
type placed struct {
	epoch int64
	seq   uint64
	row
}

func (s *sqlite) commit(ctx context.Context, group []*submission) (full bool, err error) {
	err = s.within(ctx, func(tx *sql.Tx) error {
		g := &grouping{tx: tx, epochs: map[epochID]*filling{}}
		if err := g.prepare(ctx); err != nil {
			return err
		}
		for _, sub := range group {
			if err := s.place(ctx, g, sub); err != nil {
				return err
			}
		}
		if err := g.insertSlots(ctx); err != nil {
			return err
		}
		full, err = g.updateCounts(ctx, group)
		return err
	})
	return full, err
}

func (g *grouping) prepare(ctx context.Context) (err error) {
	for into, query := range map[**sql.Stmt]string{&g.envelope: insertEnvelope, &g.tag: insertTag, &g.client: countClient} {
		if *into, err = g.tx.PrepareContext(ctx, query); err != nil {
			return fmt.Errorf("couldn't prepare: %w", err)
		}
	}
	return nil
}

// place decides on a submission and, if it is accepted, gives its slots a batch.
func (s *sqlite) place(ctx context.Context, g *grouping, sub *submission) error {
	f := g.epochs[sub.id]
	if f == nil {
		var err error
		if f, err = s.filling(ctx, g.tx, sub.id); err != nil {
			return err
		}
		g.epochs[sub.id] = f
	}
	var err error
	if sub.verdict, err = g.judge(ctx, f, sub); err != nil || sub.verdict != accepted {
		return err
	}
	if f.batch.submissions == sub.size {
		f.dirty = append(f.dirty, f.batch)
		f.batch = openBatch{sub.id, f.batch.seq + 1, 0}
	}
	f.batch.submissions++
	for lane, slots := range sub.lanes {
		for _, slot := range slots {
			g.slots = append(g.slots, placed{f.id, f.batch.seq, row{lane, slot}})
		}
	}
	return nil
}

// filling reads where the next submission of an epoch goes: into its last open batch, or, where
// all are sealed, a new one. An open batch that is full already counts as the last.
func (s *sqlite) filling(ctx context.Context, tx *sql.Tx, id epochID) (*filling, error) {
	e, err := s.id(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	f := &filling{id: e, batch: openBatch{id: id}}
	if err := tx.QueryRowContext(ctx, `SELECT state > 0 FROM epochs WHERE id = ?`, e).Scan(&f.closed); err != nil {
		return nil, err
	}
	err = tx.QueryRowContext(ctx, `SELECT seq, submissions FROM open WHERE epoch = ? ORDER BY seq DESC LIMIT 1`, e).Scan(&f.batch.seq, &f.batch.submissions)
	if errors.Is(err, sql.ErrNoRows) {
		f.batch.seq, err = nextBatch(ctx, tx, e)
	}
	return f, err
}

// judge decides on a submission and counts it if it is accepted. What it has written for a
// refused one it takes back.
func (g *grouping) judge(ctx context.Context, f *filling, sub *submission) (verdict, error) {
	if f.closed {
		return closed, nil
	}
	n, err := changed(g.envelope.ExecContext(ctx, f.id, sub.envelope[:], sub.receipt[:]))
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return g.judgeAgain(ctx, f, sub)
	}
	n, err = changed(g.tag.ExecContext(ctx, f.id, sub.tag[:]))
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return replayed, g.forget(ctx, f, sub.envelope)
	}
	n, err = changed(g.client.ExecContext(ctx, f.id, sub.client[:], sub.quota))
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return limited, g.forget(ctx, f, sub.envelope, sub.tag)
	}
	return accepted, nil
}

// judgeAgain decides on an envelope that is stored already: the receipt tells by whom.
func (g *grouping) judgeAgain(ctx context.Context, f *filling, sub *submission) (verdict, error) {
	var before []byte
	err := g.tx.QueryRowContext(ctx, `SELECT receipt FROM seen WHERE epoch = ? AND hash = ?`, f.id, sub.envelope[:]).Scan(&before)
	if err != nil {
		return 0, err
	}
	if subtle.ConstantTimeCompare(before, sub.receipt[:]) == 1 {
		return repeated, nil
	}
	return replayed, nil
}

func (g *grouping) forget(ctx context.Context, f *filling, hashes ...short) error {
	for _, hash := range hashes {
		if _, err := g.tx.ExecContext(ctx, `DELETE FROM seen WHERE epoch = ? AND hash = ?`, f.id, hash[:]); err != nil {
			return err
		}
	}
	return nil
}

// insertSlots writes the slots of all accepted submissions in a random order.
func (g *grouping) insertSlots(ctx context.Context) error {
	insert, err := g.tx.PrepareContext(ctx, insertSlot)
	if err != nil {
		return fmt.Errorf("couldn't prepare: %w", err)
	}
	shuffle(randomizer.NewSource(), g.slots)
	for i := range g.slots {
		p := &g.slots[i]
		if _, err := insert.ExecContext(ctx, p.epoch, p.seq, newRowID(), p.lane, p.slot); err != nil {
			return fmt.Errorf("couldn't store a slot: %w", err)
		}
	}
	return nil
}

// updateCounts writes the sizes of the batches that have grown and says whether one is full.
func (g *grouping) updateCounts(ctx context.Context, group []*submission) (full bool, err error) {
	size := map[epochID]uint64{}
	for _, sub := range group {
		size[sub.id] = sub.size
	}
	for id, f := range g.epochs {
		for _, b := range append(f.dirty, f.batch) {
			if b.submissions == 0 {
				continue
			}
			full = full || b.submissions == size[id]
			_, err := g.tx.ExecContext(ctx, `INSERT INTO open (epoch, seq, submissions) VALUES (?, ?, ?)
				ON CONFLICT DO UPDATE SET submissions = excluded.submissions`, f.id, b.seq, b.submissions)
			if err != nil {
				return false, err
			}
		}
	}
	return full, nil
}
