package store

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
)

// storeSnapshot is what the store says of all epochs and marks, by epoch: each of a thousand tasks' marks is held
// against it every second. It knows no SQL.
type storeSnapshot struct {
	all     []Progress
	epochs  map[rollback.Epoch]*Progress
	rows    map[rollback.Epoch][]markRow
	keys    []rollback.Epoch              // of both
	tasks   map[[16]byte][]rollback.Epoch // the same by task
	history string                        // in which database the store is
	alone   bool                          // one process at a time uses it
}

func newSnapshot(all []Progress, rows []markRow) *storeSnapshot {
	seen := &storeSnapshot{all: all, epochs: map[rollback.Epoch]*Progress{}, rows: map[rollback.Epoch][]markRow{},
		tasks: map[[16]byte][]rollback.Epoch{}}
	add := func(key rollback.Epoch) {
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

// of returns the epochs of which a guard's mark has entries.
func (seen *storeSnapshot) of(g *guard) []rollback.Epoch {
	if g.kind == kindSecret {
		return seen.keys
	}
	return seen.tasks[g.task]
}

// made returns the numbers of the batches that have been made.
func (p *Progress) made() rollback.Set {
	var open []uint64
	for _, b := range p.Open {
		open = append(open, b.Seq)
	}
	return rollback.SetBelow(p.Next, open...)
}

// compare is a [StateRollbackError] where the store, or the file of a guard's mark, was set back. secret is that of the secret.
func (seen *storeSnapshot) compare(g *guard, s, secret *rollback.Mark) error {
	return errors.Join(seen.elsewhere(s), seen.compareEntries(g, s), seen.compareRows(g, s), g.comparePair(s, secret))
}

// elsewhere is a [StateRollbackError] where the store is not in the database that a mark knows, or was promoted from a
// replica or restored there, and an epoch has begun that the operator has not ended, and is not over. It may
// lack what was made last, and by another process than this one.
func (seen *storeSnapshot) elsewhere(s *rollback.Mark) error {
	if s.Database == "" || s.Database == seen.history || !seen.goesOn(s) {
		return nil
	}
	return &StateRollbackError{otherDatabase, fmt.Sprintf("it was in %s, and is in %s", s.Database, seen.history)}
}

// goesOn says whether an epoch that a mark knows was not ended by the operator, and is not over.
func (seen *storeSnapshot) goesOn(s *rollback.Mark) bool {
	for key := range s.Entries {
		if p := seen.epochs[key]; p == nil || p.State < StateExpired {
			return true
		}
	}
	return false
}

// compareEntries is a [StateRollbackError] where a mark knows of what the store does not hold.
func (seen *storeSnapshot) compareEntries(g *guard, s *rollback.Mark) error {
	for key, e := range s.Entries {
		p := seen.epochs[key]
		where := func() string { return fmt.Sprintf("task %x, epoch %d", key.Task[:4], key.Epoch) }
		switch {
		case p == nil:
			return &StateRollbackError{g.storeBehind(), where() + ": it knows nothing of the epoch"}
		case p.State == StateEnded:
			continue
		case e.Ended:
			return &StateRollbackError{g.storeBehind(), where() + ": the operator has ended the epoch"}
		}
		if seq, some := e.Made.Beyond(p.made()); some {
			return &StateRollbackError{g.storeBehind(), fmt.Sprintf("%s: batch %d was made and is not held", where(), seq)}
		}
		var row markRow
		for _, r := range seen.rows[key] {
			if r.file == s.ID {
				row = r
			}
		}
		if row.StoreBehind(e.Steps) {
			return &StateRollbackError{g.storeBehind(), fmt.Sprintf("%s: %d of %d steps", where(), row.Steps, e.Steps)}
		}
	}
	return nil
}

// compareRows is a [StateRollbackError] where the store knows more of a mark than the mark itself: its file was set
// back. One process has a file, so a file that is new to an SQLite store, where another was known, was set
// back to before its first use.
func (seen *storeSnapshot) compareRows(g *guard, s *rollback.Mark) error {
	now := g.state().ID // its first step may have come after s was read
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
				return &StateRollbackError{g.fileBehind(), "it knows nothing of the store"}
			}
		}
	}
	return nil
}

// check is a [StateRollbackError] where a mark has less of an epoch than the store has known it to have. Where another
// process shares the file it may have raised the mark since this one looked.
func (g *guard) check(key rollback.Epoch, row markRow) error {
	if !row.MarkBehind(g.Entry(key).Steps) {
		return nil
	}
	if err := g.Refresh(); err != nil {
		return err
	}
	if held := g.Entry(key).Steps; row.MarkBehind(held) {
		return &StateRollbackError{g.fileBehind(), fmt.Sprintf("task %x, epoch %d: %d of at least %d steps", key.Task[:4],
			key.Epoch, held, row.Marked)}
	}
	return nil
}

// comparePair is a [StateRollbackError] where HPKE keys have been used with another mark of the secret, or the secret with
// another mark of the keys: the other file was set back to before its first one. In a database that others share it
// looks like a new process's. So does a process that shares one of the two files, and has a copy of the other.
func (g *guard) comparePair(s, secret *rollback.Mark) error {
	const shared = " (processes share both of these files, or neither)"
	if g.kind != kindKeys {
		return nil
	}
	if s.Secret != "" && s.Secret != secret.ID {
		return &StateRollbackError{secretBehind, "the HPKE keys have been used with another one: it was set back to before its " +
			"first use, or is a copy" + shared}
	}
	if known := secret.Keys[g.half()]; known != "" && known != s.ID {
		return &StateRollbackError{keysBehind, "the secret has been used with others: they were set back to before their first " +
			"use, or are a copy" + shared}
	}
	return nil
}

// catchUp returns what the marks lack of what the store holds: a crash has come between, or another process
// has made it.
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

// know writes into the marks in which database the store is, and ties those of the secret and of the HPKE keys
// together, for good: where another process was faster, the next look finds it. The secret, which all tasks share, is
// written once for all of them.
func bindMarks(guards []*guard, history string) (failed error) {
	secret, tied := guards[0].state(), map[string]string{}
	for _, g := range guards {
		s := g.Known()
		if s == nil {
			continue
		}
		bind := g.kind == kindKeys && s.Secret == "" && secret.ID != ""
		if s.Database != history || bind {
			failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
				s.Database = history
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
