package store

import (
	"fmt"

	"github.com/doona-dp/doona/internal/rollback"
)

// Every transaction that changes an epoch is a step of it, in the order of [rollback.Commit]: it stands in a mark in
// the secret file and in the task's HPKE key file before anyone is told of it.

// step makes the transaction a step of an epoch, whose row it has locked, and has the marks say so, and
// that the batches of some numbers were made.
func (t *transaction) step(e epochRow, id EpochID, made ...uint64) error {
	return t.advanceMarks(e, id, 1, made...)
}

// settled is step for a transaction that changes nothing, and whose answer relies on the steps before: their
// marks may not be on disk, where writing them failed.
func (t *transaction) settled(e epochRow, id EpochID) error { return t.advanceMarks(e, id, 0) }

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

// checkStep is a [StateRollbackError] where a mark knows of something that the store does not hold. That may be a batch whose
// number is about to be made: the mark knows that it was made before.
func (t *transaction) checkStep(g *guard, id EpochID, row markRow, made []uint64) error {
	if len(made) > 0 && !t.engine.alone() {
		if err := g.Refresh(); err != nil { // another process may have made them
			return err
		}
	}
	e, where := g.Entry(id.key()), fmt.Sprintf("task %x, epoch %d", id.Task[:4], id.Epoch)
	if row.StoreBehind(e.Steps) {
		return &StateRollbackError{g.storeBehind(), fmt.Sprintf("%s: %d of %d steps", where, row.Steps, e.Steps)}
	}
	if e.Ended {
		return &StateRollbackError{g.storeBehind(), where + ": the operator has ended the epoch"}
	}
	for _, seq := range made {
		if e.Made.Has(seq) {
			return &StateRollbackError{g.storeBehind(), fmt.Sprintf("%s: batch %d was made and is not held", where, seq)}
		}
	}
	return g.check(id.key(), row)
}
