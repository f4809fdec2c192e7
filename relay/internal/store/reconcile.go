package store

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/doona-dp/doona/internal/rollback"
)

// reconciler is the part of a store that compares it with the rollback marks in the key files.
type reconciler struct {
	*database
	epochs      *epochs
	members     *members
	reconcileMu sync.Mutex // held during Reconcile; also guards members.recorded and members.caught
}

// Reconcile compares the store with the rollback marks in the key files and returns the progress of all epochs. It
// writes to the marks what they lack after a crash or after another process's work. Call it first, then periodically.
// If it finds a state rollback, it returns a [StateRollbackError], and so does from then on every method that changes
// the store or hands out a batch.
func (d *reconciler) Reconcile(ctx context.Context) (all []Progress, err error) {
	err = d.reserve.WithReserve(func() error {
		all, err = d.reconcileOnce(ctx)
		return err
	})
	return all, err
}

func (d *reconciler) reconcileOnce(ctx context.Context) ([]Progress, error) {
	guards := d.vault.guards()
	d.reconcileMu.Lock()
	defer d.reconcileMu.Unlock()
	if back := d.rollbackLatch.StateRollback(); back != nil {
		return nil, cmp.Or(d.members.announceRollback(ctx), error(back))
	}
	begun, err := d.members.clock(ctx)
	if err != nil {
		return nil, err
	}
	if guards, err = d.readMarks(guards); err != nil {
		return nil, err
	}
	seen, back, err := d.compare(ctx, guards)
	if err != nil {
		return nil, err
	}
	if back != nil {
		return seen.all, d.rollbackLatch.stop(ctx, back)
	}
	if d.members.history = seen.history; guards[0].state().SignOff != "" {
		d.members.signedOn = "" // a process that shares the secret file has signed off, or this one has just started
	}
	if err := errors.Join(catchUp(guards, seen).raise(), bindMarks(guards, seen.history)); err != nil {
		return nil, err
	}
	return seen.all, d.members.announce(ctx, seen.all, begun)
}

// readMarks waits until the rollback marks in memory are on disk, and rereads marks that other processes may share. It
// omits those for which Unwatch was called.
func (d *reconciler) readMarks(guards []*guard) (watched []*guard, err error) {
	for _, g := range guards {
		err := g.Sync()
		if err == nil && !d.engine.alone() {
			err = g.Refresh()
		}
		if g.gone.Load() {
			continue
		}
		if err != nil {
			return nil, err
		}
		watched = append(watched, g)
	}
	return watched, nil
}

// compare compares the rollback marks with the store. It reads the marks first. The store only grows, so work between
// the two reads does not look like a state rollback.
func (d *reconciler) compare(ctx context.Context, guards []*guard) (*storeSnapshot, *StateRollbackError, error) {
	states := make([]*rollback.Mark, len(guards))
	for i, g := range guards {
		states[i] = g.state()
	}
	seen, err := d.snapshot(ctx)
	if err == nil && states[0].SignOff != "" && states[0].Database != seen.history {
		err = d.readSignOffs(ctx, seen, states[0])
	}
	if err != nil {
		return nil, nil, err
	}
	for i, g := range guards {
		err := seen.compare(g, states[i], states[0])
		if back := new(StateRollbackError); errors.As(err, &back) {
			return seen, back, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return seen, nil, nil
}

func (d *reconciler) snapshot(ctx context.Context) (*storeSnapshot, error) {
	all, err := d.epochs.Progress(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := markTable{d.database}.all(ctx)
	if err != nil {
		return nil, err
	}
	history, err := d.engine.history(ctx, d.read)
	if err != nil {
		return nil, err
	}
	seen := newSnapshot(all, rows)
	seen.history, seen.alone = history, d.engine.alone()
	return seen, nil
}

// FindRollback does what Reconcile does but read-only. It returns the state rollback, or nil.
func (d *reconciler) FindRollback(ctx context.Context, v *Vault) (*StateRollbackError, error) {
	if d.absent {
		return missingStore(v), nil
	}
	_, back, err := d.compare(ctx, v.guards())
	if back != nil || err != nil {
		return back, err
	}
	if said, err := (processTable{d.database}).anyHalted(ctx); err != nil || !said {
		return nil, err
	}
	return foundByOther(), nil
}

// missingStore is for a store that does not exist. It returns a [StateRollbackError] if a rollback mark shows that
// there was one.
func missingStore(v *Vault) *StateRollbackError {
	for _, g := range v.guards() {
		if s := g.Known(); s != nil && len(s.Entries) > 0 {
			return &StateRollbackError{g.storeRolledBack(), "there is no store"}
		}
	}
	return nil
}

// cut records a batch's number in the rollback marks of this process. The relay calls it before the first byte of the
// batch leaves, so that no process makes another batch with that number after a rollback.
func (d *reconciler) cut(b BatchID) error {
	pending := pendingMarks{}
	for _, g := range d.vault.guards() {
		if g.of(b.key()) && !g.Entry(b.key()).Made.Has(b.Seq) {
			pending.add(g, b.key(), rollback.Entry{Made: rollback.SetOf(b.Seq)})
		}
	}
	return pending.raise()
}
