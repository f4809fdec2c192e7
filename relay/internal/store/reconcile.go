package store

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/doona-dp/doona/internal/rollback"
)

// reconciler is the part of a store that holds it against the marks in the key files.
type reconciler struct {
	*database
	epochs      *epochs
	members     *members
	reconcileMu sync.Mutex // one Follow at a time; guards what members told and caught, too
}

// Follow is Progress that compares the store with the marks in the key files, and takes note there of
// what a crash kept out, or another process has made. It must be called before anything else, and again
// and again. Where something was set back its error is a [StateRollbackError], and from then on that of all
// methods that change the store or hand out a batch.
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
	if err := errors.Join(catchUp(guards, seen).raise(), bindMarks(guards, seen.history)); err != nil {
		return nil, err
	}
	return seen.all, d.members.announce(ctx, seen.all, begun)
}

// readMarks waits until the marks that the files show are on disk, and reads those that other processes may share. It
// returns the guards without those that are not watched any more, as their tasks were dropped meanwhile.
func (d *reconciler) readMarks(guards []*guard) (watched []*guard, err error) {
	for _, g := range guards {
		err := g.Settle()
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

// compare holds the marks against the store. It looks at the marks before the store, which only grows, so
// that what is done meanwhile does not look like a set-back.
func (d *reconciler) compare(ctx context.Context, guards []*guard) (*storeSnapshot, *StateRollbackError, error) {
	states := make([]*rollback.Mark, len(guards))
	for i, g := range guards {
		states[i] = g.state()
	}
	seen, err := d.snapshot(ctx)
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

// snapshot reads what the marks are held against.
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

// Behind compares the store with the marks in the key files, and returns what was set back, if
// anything.
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

// behindNothing is a [StateRollbackError] where a mark knows of a store, and there is none.
func missingStore(v *Vault) *StateRollbackError {
	for _, g := range v.guards() {
		if s := g.Known(); s != nil && len(s.Entries) > 0 {
			return &StateRollbackError{g.storeBehind(), "there is no store"}
		}
	}
	return nil
}

// cut cuts a batch's leaf in the marks, if it is not cut, before its first byte leaves.
func (d *reconciler) cut(b BatchID) error {
	pending := pendingMarks{}
	for _, g := range d.vault.guards() {
		if g.of(b.key()) && !g.Entry(b.key()).Made.Has(b.Seq) {
			pending.add(g, b.key(), rollback.Entry{Made: rollback.SetOf(b.Seq)})
		}
	}
	return pending.raise()
}
