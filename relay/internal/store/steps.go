package store

import (
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
)

// A transaction that changes an epoch is a step of that epoch. Before the relay tells anyone about a step, it writes
// the step to two rollback marks: in the secret file and in the task's HPKE key file. See [rollback.Commit].

// step counts this transaction as a step of an epoch whose row it has locked. After the commit, the rollback marks
// record the step, and made: the numbers of the batches that the step made.
func (t *transaction) step(e epochRow, id EpochID, made ...uint64) error {
	return t.advanceMarks(e, id, 1, made...)
}

// ensureMarked is for a transaction that changes nothing but whose answer relies on earlier steps. It makes sure that
// the rollback marks have these steps, because an earlier write may have failed.
func (t *transaction) ensureMarked(e epochRow, id EpochID) error { return t.advanceMarks(e, id, 0) }

func (t *transaction) advanceMarks(e epochRow, id EpochID, steps uint64, made ...uint64) error {
	if e.state == StateEnded {
		return nil
	}
	guards := t.vault.guards()
	if err := t.markTx().read(&e, id); err != nil {
		return err
	}
	for _, g := range guards {
		if !g.of(id.key()) {
			continue
		}
		name, err := g.Name()
		if err != nil {
			return err
		}
		row, held := e.marks[name], g.Entry(id.key()).Steps
		if err := t.checkStep(g, id, row, made); err != nil {
			return err
		}
		t.pending.add(g, id.key(), rollback.Entry{Steps: row.Steps + steps, Made: rollback.SetOf(made...)})
		if steps == 0 {
			continue
		}
		count := rollback.Count{Steps: row.Steps + steps, Marked: held}
		if err := t.markTx().write(e, markRow{file: name, kind: g.kind, Count: count}); err != nil {
			return err
		}
	}
	return nil
}

// checkStep returns a [StateRollbackError] if a rollback mark records something that the store lacks. made are the
// batch numbers that this transaction is about to make: if the mark has one, the store has lost that batch.
func (t *transaction) checkStep(g *guard, id EpochID, row markRow, made []uint64) error {
	if len(made) > 0 && !t.engine.alone() {
		if err := g.Refresh(); err != nil { // another process may have made them
			return err
		}
	}
	e, where := g.Entry(id.key()), fmt.Sprintf("task %x, epoch %d", id.Task[:4], id.Epoch)
	if row.StoreRolledBack(e.Steps) {
		return &StateRollbackError{g.storeRolledBack(), fmt.Sprintf("%s: %d of %d steps", where, row.Steps, e.Steps)}
	}
	if e.Ended {
		return &StateRollbackError{g.storeRolledBack(), where + ": the operator has ended the epoch"}
	}
	for _, seq := range made {
		if e.Made.Has(seq) {
			return &StateRollbackError{g.storeRolledBack(), fmt.Sprintf("%s: batch %d was made and is missing", where, seq)}
		}
	}
	return g.check(id.key(), row)
}
