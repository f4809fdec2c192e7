package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/doona-dp/doona/internal/rollback"
)

// storeSnapshot indexes the store's epochs and rollback mark rows by epoch. Every second, the relay compares the
// rollback marks of up to a thousand tasks with it. It uses no SQL.
type storeSnapshot struct {
	all     []Progress
	epochs  map[rollback.EpochKey]*Progress
	rows    map[rollback.EpochKey][]markRow
	keys    []rollback.EpochKey              // all keys of epochs and rows
	tasks   map[[16]byte][]rollback.EpochKey // keys by task
	history string                           // identity and timeline of the database server
	alone   bool                             // only one process can use the store

	// proven is the earlier history of which the database has everything, as this relay's sign-off shows; "" for none.
	proven string
}

func newSnapshot(all []Progress, rows []markRow) *storeSnapshot {
	seen := &storeSnapshot{all: all, epochs: map[rollback.EpochKey]*Progress{}, rows: map[rollback.EpochKey][]markRow{},
		tasks: map[[16]byte][]rollback.EpochKey{}}
	add := func(key rollback.EpochKey) {
		if seen.epochs[key] == nil && seen.rows[key] == nil {
			seen.keys = append(seen.keys, key)
			seen.tasks[key.Task] = append(seen.tasks[key.Task], key)
		}
	}
	for i := range all {
		key := all[i].ID.key()
		add(key)
		seen.epochs[key] = &all[i]
	}
	for _, row := range rows {
		add(row.key)
		seen.rows[row.key] = append(seen.rows[row.key], row)
	}
	return seen
}

// of returns the epochs that belong into the guard's rollback mark.
func (seen *storeSnapshot) of(g *guard) []rollback.EpochKey {
	if g.kind == kindSecret {
		return seen.keys
	}
	return seen.tasks[g.task]
}

// made returns the numbers of the epoch's sealed batches: all below Next that are not open.
func (p *Progress) made() rollback.Set {
	var open []uint64
	for _, b := range p.Open {
		open = append(open, b.Seq)
	}
	return rollback.SetBelow(p.Next, open...)
}

// compare returns a [StateRollbackError] if the store or a rollback mark was replaced by an older copy. s is the
// store's mark, in a file of its own; secret is the mark in the secret file.
func (seen *storeSnapshot) compare(g *guard, s, secret *rollback.Mark) error {
	return errors.Join(seen.elsewhere(s), seen.compareEntries(g, s), seen.compareRows(g, s), g.comparePair(s, secret))
}

// elsewhere returns a [StateRollbackError] if the store is in another database than the rollback mark records, or if
// that database was restored or promoted from a replica. Such a database may lack the latest steps of any process,
// unless sign-offs prove the contrary. If all epochs of the mark have expired or ended, elsewhere returns nil.
func (seen *storeSnapshot) elsewhere(s *rollback.Mark) error {
	if s.Database == "" || s.Database == seen.history || s.Database == seen.proven || !seen.goesOn(s) {
		return nil
	}
	return &StateRollbackError{otherDatabase, fmt.Sprintf("it was on %s and is now on %s", s.Database, seen.history)}
}

// goesOn reports whether the rollback mark has an epoch that has neither expired nor been ended by the operator.
func (seen *storeSnapshot) goesOn(s *rollback.Mark) bool {
	for key := range s.Entries {
		if p := seen.epochs[key]; p == nil || p.State < StateExpired {
			return true
		}
	}
	return false
}

// compareEntries returns a [StateRollbackError] if the rollback mark records something that the store lacks.
func (seen *storeSnapshot) compareEntries(g *guard, s *rollback.Mark) error {
	for key, e := range s.Entries {
		p := seen.epochs[key]
		where := func() string { return fmt.Sprintf("task %x, epoch %d", key.Task[:4], key.Epoch) }
		switch {
		case p == nil:
			return &StateRollbackError{g.storeRolledBack(), where() + ": the epoch is missing"}
		case p.State == StateEnded:
			continue
		case e.Ended:
			return &StateRollbackError{g.storeRolledBack(), where() + ": the operator has ended the epoch"}
		}
		if seq, some := e.Made.Beyond(p.made()); some {
			return &StateRollbackError{g.storeRolledBack(), fmt.Sprintf("%s: batch %d was made and is missing", where(), seq)}
		}
		var row markRow
		for _, r := range seen.rows[key] {
			if r.file == s.ID {
				row = r
			}
		}
		if row.StoreRolledBack(e.Steps) {
			return &StateRollbackError{g.storeRolledBack(), fmt.Sprintf("%s: %d of %d steps", where(), row.Steps, e.Steps)}
		}
	}
	return nil
}

// compareRows returns a [StateRollbackError] if the store has recorded more steps of a rollback mark than the mark has:
// the mark's file was rolled back. In an SQLite store, each file belongs to one process. If such a store knows another
// file instead of this one, this file was rolled back to before its first use.
func (seen *storeSnapshot) compareRows(g *guard, s *rollback.Mark) error {
	now := g.state().ID // the mark may have got its ID after s was read
	for _, key := range seen.of(g) {
		if p := seen.epochs[key]; p == nil || p.State == StateEnded {
			continue
		}
		for _, row := range seen.rows[key] {
			if row.kind != g.kind {
				continue
			}
			if row.file == s.ID || row.file == now {
				if err := g.check(key, row); err != nil {
					return err
				}
			} else if seen.alone {
				return &StateRollbackError{g.fileRolledBack(), "it has no record of the store"}
			}
		}
	}
	return nil
}

// check returns a [StateRollbackError] if a rollback mark has fewer steps of an epoch than the store has recorded of
// it. Before that, it rereads the file, because another process that shares it may have raised the mark.
func (g *guard) check(key rollback.EpochKey, row markRow) error {
	if !row.MarkRolledBack(g.Entry(key).Steps) {
		return nil
	}
	if err := g.Refresh(); err != nil {
		return err
	}
	if held := g.Entry(key).Steps; row.MarkRolledBack(held) {
		return &StateRollbackError{g.fileRolledBack(), fmt.Sprintf("task %x, epoch %d: %d of at least %d steps", key.Task[:4],
			key.Epoch, held, row.Marked)}
	}
	return nil
}

// comparePair returns a [StateRollbackError] if the secret and the HPKE keys were used with other versions of each
// other: one of them was rolled back to before its first use. In a shared database such a file looks like a new
// process's. A process that shares one of the two files, and has a copy of the other, gets the same error.
func (g *guard) comparePair(s, secret *rollback.Mark) error {
	const shared = " (processes share both of these files, or neither)"
	if g.kind != kindKeys {
		return nil
	}
	if s.Secret != "" && s.Secret != secret.ID {
		return &StateRollbackError{secretOlderThanStore, "the HPKE keys were used with another secret: this one was rolled back to " +
			"before its first use, or is a copy" + shared}
	}
	if known := secret.Keys[g.half()]; known != "" && known != s.ID {
		return &StateRollbackError{keysOlderThanStore, "the secret was used with other HPKE keys: these were rolled back to before " +
			"their first use, or are a copy" + shared}
	}
	return nil
}

// catchUp returns the entries that the store has and the rollback marks lack, because of a crash before the mark was
// written or of another process's work.
func catchUp(guards []*guard, seen *storeSnapshot) pendingMarks {
	out := pendingMarks{}
	for _, g := range guards {
		s := g.state()
		for _, key := range seen.of(g) {
			e := s.Entries[key]
			if p := seen.epochs[key]; p != nil && p.State == StateEnded && !e.Ended {
				out.add(g, key, rollback.Entry{Ended: true})
			} else if p != nil {
				if _, some := p.made().Beyond(e.Made); some {
					out.add(g, key, rollback.Entry{Made: p.made()})
				}
			}
			for _, row := range seen.rows[key] {
				if row.file == s.ID && row.Steps > e.Steps {
					out.add(g, key, rollback.Entry{Steps: row.Steps})
				}
			}
		}
	}
	return out
}

// bindMarks records in the rollback marks which database holds the store, and removes the sign-off: in the secret's
// mark last, so that a crash before that leaves it. It also binds the marks of the secret and of the HPKE keys
// permanently: each records the other's ID. If another process was faster, the next Reconcile checks the result.
// bindMarks writes the secret's mark once for all tasks.
func bindMarks(guards []*guard, history string) (failed error) {
	secret, tied := guards[0].state(), map[string]string{}
	for _, g := range slices.Backward(guards) {
		s := g.Known()
		if s == nil {
			continue
		}
		bind := g.kind == kindKeys && s.Secret == "" && secret.ID != ""
		if g.kind == kindSecret && failed != nil {
			return failed
		}
		if s.Database != history || bind || s.SignOff != "" {
			failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
				s.Database, s.SignOff = history, ""
				if bind {
					s.Secret = cmp.Or(s.Secret, secret.ID)
				}
			}))
		}
		if g.kind == kindKeys && g.state().Secret == secret.ID && secret.Keys[g.half()] == "" {
			tied[g.half()] = s.ID
		}
	}
	if len(tied) == 0 {
		return failed
	}
	return errors.Join(failed, guards[0].Change(func(of *rollback.Mark) {
		if of.Keys == nil {
			of.Keys = map[string]string{}
		}
		for half, id := range tied {
			of.Keys[half] = cmp.Or(of.Keys[half], id)
		}
	}))
}
