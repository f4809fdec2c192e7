package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/mark"
)

// Several processes may share a PostgreSQL database, each with marks of its own. A batch is handed out only
// when its leaf is cut in the marks of all of them: else one that lives on, or comes back, beside a database
// that was set back could make another batch of that number. A process that is not heard of for
// [fenceAfter] is fenced: the others go on without it, and it hands out nothing until it has caught up, beside
// one that was never fenced.
//
//	the maker crashes            the restart, or another process, sees      and does
//	before its own cut           a batch that is not cut                    cuts, waits for all, serves
//	before the others' cuts      a batch that is cut here alone             the same
//	after the first byte         a batch that all have cut                  serves the same bytes; where the
//	                                                                        database was set back: [SetBack]
//
// A fenced process that comes back, and a new one beside others, joins in three looks at the store, of which
// each is a [Store.Follow]:
//
//	1  It is joining: from here on the others wait for its cuts. It hands out nothing yet.
//	2  It cuts what is there. What the others have handed out without it was made before 1, and is there,
//	   unless the database has been set back since.
//	3  It is a member, if another member has begun a look of its own after 2 and found no set-back: a member
//	   has cut all that was ever handed out.
//
// A process that sees that it was fenced keeps that in its secret's mark until it is a member again: a database
// that does not know of it was set back. A member that starts again is one at once, as the others have waited
// for it all the time. What this does not tell is in docs/threat-model.md: a process that was away, and never
// saw that it was fenced, beside a database that was set back to when it was a member.

// fenceAfter is how long a process may be silent before the others go on without it. Each is heard of about
// once a second.
const fenceAfter = 10 * time.Second

// standing is how a process counts for the others.
type standing int

const (
	member  standing = iota // The others wait for its cuts, and it hands out batches.
	fenced                  // Nobody waits for it.
	joining                 // The others wait for its cuts, and it hands out nothing yet.
)

// peer is a process by the name of its secret's mark: those that share the file are one.
type peer struct {
	file     string
	seen     float64 // when it last began a look at the store that found no set-back, by the database's clock
	standing standing
}

// ErrUncut is returned for a batch whose number another process has not cut yet.
var ErrUncut = errors.New("another process has not taken note of the batch yet")

// now is the database's clock, in seconds.
const now = `EXTRACT(EPOCH FROM clock_timestamp())::float8`

// clock reads the database's clock.
func (d *database) clock(ctx context.Context) (at float64, err error) {
	if d.engine.alone() {
		return 0, nil
	}
	if err := d.read.QueryRowContext(ctx, `SELECT `+now).Scan(&at); err != nil {
		return 0, fmt.Errorf("couldn't read the database's clock: %w", err)
	}
	return at, nil
}

// meet has the others hear of this process, which has caught up with the store by a look that it began at a
// moment, and tells them which batches it has cut.
func (d *database) meet(ctx context.Context, all []Progress, begun float64) error {
	if d.engine.alone() || len(all) == 0 {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	held := map[heldBatch]bool{}
	var caught float64
	var as standing
	err = d.within(ctx, func(tx *transaction) error {
		peers, at, err := tx.peers()
		if err != nil {
			return err
		}
		as, caught = stand(peers, name, at, d.caught)
		if err := tx.keepFence(peers, name, as); err != nil {
			return err
		}
		const hear = `INSERT INTO processes (file, seen, fenced) VALUES ($1, $2, $3)
			ON CONFLICT (file) DO UPDATE SET seen = excluded.seen, fenced = excluded.fenced`
		if _, err := tx.exec(hear, name, begun, int(as)); err != nil {
			return err
		}
		return tx.tell(name, all, d.told, held)
	})
	if err != nil {
		return fmt.Errorf("couldn't be heard of: %w", err)
	}
	d.told, d.caught = held, caught
	d.met.Store(as == member)
	return nil
}

// peers locks and lists the processes, one that decides at a time, and reads the clock.
func (t *transaction) peers() (all []peer, at float64, err error) {
	const list = `SELECT file, seen, fenced FROM processes ORDER BY file FOR UPDATE`
	all, err = collect(t.ctx, t.tx, list, func(rows *sql.Rows) (p peer, err error) {
		return p, rows.Scan(&p.file, &p.seen, &p.standing)
	})
	if err == nil {
		err = t.row(`SELECT ` + now).Scan(&at)
	}
	return all, at, err
}

// stand decides how a process counts that has just looked at the store. caught is when it had caught up as it
// was joining, 0 for not yet.
func stand(peers []peer, name string, at, caught float64) (standing, float64) {
	beside := func(after float64) bool {
		return slices.ContainsFunc(peers, func(p peer) bool {
			return p.file != name && p.standing == member && p.seen > after
		})
	}
	i := slices.IndexFunc(peers, func(p peer) bool { return p.file == name })
	switch {
	case i < 0 && !beside(at-fenceAfter.Seconds()), i >= 0 && peers[i].standing == member:
		return member, 0
	case i < 0, peers[i].standing == fenced:
		return joining, 0
	case caught == 0:
		return joining, at
	case beside(caught):
		return member, 0
	}
	return joining, caught
}

// keepFence keeps in the secret's mark that this process was fenced, until it is a member again, and is a [SetBack]
// where the database does not know of it. The peers are locked: processes with one secret share the mark.
func (t *transaction) keepFence(peers []peer, name string, as standing) error {
	file := t.vault.file.Mark()
	if err := file.Refresh(); err != nil {
		return err
	}
	out := slices.ContainsFunc(peers, func(p peer) bool { return p.file == name && p.standing != member })
	switch keeps := file.State().Fenced; {
	case keeps && !out:
		return &SetBack{StoreBehindSecret, "it does not know that the other processes went on without this one"}
	case keeps != (out && as != member):
		return file.Change(func(s *mark.State) { s.Fenced = !keeps })
	}
	return nil
}

// heldBatch names a batch that the others have been told of.
type heldBatch struct {
	id  EpochID
	seq uint64
}

// tell tells the others which batches this process has cut, but for those they have been told of, and lists
// all in held.
func (t *transaction) tell(name string, all []Progress, told, held map[heldBatch]bool) error {
	const cut = `INSERT INTO cuts (epoch, seq, file) SELECT epoch, seq, $1 FROM batches
		WHERE bytes IS NOT NULL AND epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3)` + `
		AND seq = $4 ON CONFLICT DO NOTHING`
	for i := range all {
		for _, seq := range all[i].Held {
			key := heldBatch{all[i].ID, seq}
			held[key] = true
			if told[key] {
				continue
			}
			if _, err := t.exec(cut, name, key.id.Task[:], key.id.Epoch, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutByAll is [ErrUncut] until all processes have cut a batch that this one has cut, or were fenced.
func (d *database) cutByAll(ctx context.Context, id EpochID, seq uint64) error {
	if d.engine.alone() {
		return nil
	}
	if !d.met.Load() {
		if _, err := d.Follow(ctx); err != nil {
			return err
		}
		if !d.met.Load() {
			return ErrUncut
		}
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	if err := d.uncut(ctx, name, id, seq); !errors.Is(err, ErrUncut) {
		return err
	}
	if err := d.fence(ctx, name, id, seq); err != nil {
		return fmt.Errorf("couldn't fence other processes: %w", err)
	}
	return d.uncut(ctx, name, id, seq)
}

// missing selects the processes that the one of name $1 waits for until they have cut batch $4.
const missing = `file <> $1 AND fenced <> 1 AND NOT EXISTS (SELECT 1 FROM cuts c WHERE c.file = processes.file
	AND c.seq = $4 AND c.epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3))`

// uncut is [ErrUncut] while this process waits for another, or is not a member.
func (d *database) uncut(ctx context.Context, name string, id EpochID, seq uint64) error {
	var others, standing int
	const count = `SELECT COUNT(CASE WHEN ` + missing + ` THEN 1 END),
		COALESCE(SUM(CASE WHEN file = $1 THEN fenced END), 1) FROM processes`
	if err := d.read.QueryRowContext(ctx, count, name, id.Task[:], id.Epoch, seq).Scan(&others, &standing); err != nil {
		return fmt.Errorf("couldn't look for other processes: %w", err)
	}
	if others > 0 || standing != int(member) {
		return ErrUncut
	}
	return nil
}

// fence fences the processes that this one, a member, has waited for too long.
func (d *database) fence(ctx context.Context, name string, id EpochID, seq uint64) error {
	const fence = `UPDATE processes SET fenced = 1 WHERE ` + missing + ` AND seen < ` + now + ` - $5::float8
		AND EXISTS (SELECT 1 FROM processes me WHERE me.file = $1 AND me.fenced = 0)`
	return d.within(ctx, func(tx *transaction) error {
		if _, _, err := tx.peers(); err != nil { // one at a time, or two could fence each other
			return err
		}
		_, err := tx.exec(fence, name, id.Task[:], id.Epoch, seq, fenceAfter.Seconds())
		return err
	})
}
