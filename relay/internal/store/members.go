package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/rollback"
)

// Several processes may share a PostgreSQL database, each with its own rollback marks. A process hands out a batch only
// after every process has cut it, that is, recorded its number in its own rollback marks. Otherwise, after a rollback
// of the database, a process that has not cut the batch could make another one with that number. A process that is
// silent for [fenceAfter] is fenced: the others continue without it. It hands out nothing until it has joined again.
//
//	the maker crashes            the restart, or another process, sees      and does
//	before its own cut           a batch that nobody has cut                cuts it, waits for all, serves it
//	before the others' cuts      a batch that only some have cut            the same
//	after the first byte         a batch that all have cut                  serves the same bytes, or an error if
//	                                                                        the database was rolled back
//
// A fenced process that returns, or a new one, joins the others in three scans of the store. A scan is one
// [Store.Reconcile].
//
//	1  It is joining: from now on the others wait for its cuts. It hands out nothing yet.
//	2  It cuts all batches in the store. What the others handed out without it was made before scan 1. It is in
//	   the store, unless the database was rolled back since.
//	3  It is a member if another member has begun a scan after scan 2 and found no state rollback: a member has
//	   cut everything that was ever handed out.
//
// A process that sees that it was fenced records this in its secret's rollback mark until it is a member again. If the
// database then does not know of the fence, it was rolled back. A member that restarts is a member at once, because the
// others have waited for it. So is the first process of a store.
//
// Suppose that a process was away, never saw that it was fenced, and the database was rolled back to before the fence.
// That process still counts as a member. But the others notice the rollback: the first to find it records it in the
// database (halted), which stops all. A process is fenced only after it had [fenceAfter] to do so, by the clock of the
// process that waits; only time in which that process itself scanned the store counts. docs/threat-model.md names the
// case that this cannot detect: all processes that know of the rollback are gone.
//
// Scans are numbered, because somebody may change the database's clock. If a process has seen a number that the
// database no longer has, the database was rolled back.

// members is the part of a store that stops a process from handing out a batch before all others have cut it.
type members struct {
	*database
	membership
	reconciler *reconciler
	announced  atomic.Bool      // this process has recorded the state rollback in the database
	recorded   map[BatchID]bool // in the database; reconciler.reconcileMu guards it and caught
	caught     uint64           // scan at which this joining process had cut all batches; 0 for not yet
	history    string           // identity and timeline of the server; reconciler.reconcileMu guards it and signedOn
	signedOn   string           // history on which this process has signed on
}

// ErrUncut means that a batch must not be handed out, because another process has not recorded it in its rollback
// marks.
var ErrUncut = errors.New("waiting for another process to record the batch")

// Joins returns what [Store.Joining] returns in the process with vault v, read from the database. It assumes that every
// member is running.
func (d *members) Joins(ctx context.Context, v *Vault) (Joining, error) {
	file := guard{MarkFile: v.file.Mark()}
	mine, members, others, err := processTable{d.database}.count(ctx, file.state().ID)
	if err != nil {
		return "", err
	}
	switch {
	case mine == unknown && others == 0, mine == halted, mine == member && !file.state().Fenced:
		return "", nil
	case members == 0:
		return NoMember, nil
	}
	return CatchesUp, nil
}

// clock returns the highest scan number; always 0 if only one process can use the store.
func (d *members) clock(ctx context.Context) (uint64, error) {
	if d.engine.alone() {
		return 0, nil
	}
	return processTable{d.database}.highest(ctx)
}

// announce records this process's scan in the database, and which batches it has cut. begun is the highest scan number
// when this scan began.
func (d *members) announce(ctx context.Context, all []Progress, begun uint64) error {
	if d.engine.alone() || len(all) == 0 {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	held := map[BatchID]bool{}
	var peers []peer
	var caught uint64
	me := peer{file: name, begun: begun}
	err = d.within(ctx, func(tx *transaction) (err error) {
		if peers, err = tx.memberTx().peers(); err != nil {
			return err
		}
		if err := d.remembers(peers); err != nil {
			return err
		}
		mine, err := d.keepFence(standingOf(peers, name), all)
		if err != nil {
			return err
		}
		me.scan = latest(peers) + 1
		me.standing, caught = stand(mine, others(peers, name), me.scan, d.caught)
		if err := d.recordFence(me.standing != member && mine != unknown); err != nil {
			return err
		}
		if err := errors.Join(tx.memberTx().enlist(me), d.signOn(tx, name)); err != nil {
			return err
		}
		return tx.memberTx().recordCuts(name, all, d.recorded, held)
	})
	if err != nil {
		return fmt.Errorf("couldn't record this process's heartbeat: %w", err)
	}
	d.recorded, d.caught, d.signedOn = held, caught, d.history
	d.listen(me, others(peers, name), time.Now())
	return nil
}

// keepFence returns this process's standing before this scan. A process that has seen that it was fenced stays fenced
// until it is a member again. If the database does not know of the fence and an epoch of this process has not expired,
// it returns a [StateRollbackError]. The caller has locked the processes, because those with one secret file share its
// mark.
func (d *members) keepFence(mine standing, all []Progress) (standing, error) {
	file := &guard{MarkFile: d.vault.file.Mark(), kind: kindSecret}
	if err := file.Refresh(); err != nil {
		return mine, err
	}
	s := file.state()
	if !s.Fenced || mine == fenced || mine == joining {
		return mine, nil
	}
	if newSnapshot(all, nil).goesOn(s) {
		return mine, &StateRollbackError{storeOlderThanSecret, "it has no record that the other processes continued without this one"}
	}
	return fenced, nil
}

// recordFence records in the secret's rollback mark whether this process is fenced.
func (d *members) recordFence(is bool) error {
	file := &guard{MarkFile: d.vault.file.Mark(), kind: kindSecret}
	if file.state().Fenced == is {
		return nil
	}
	return file.Change(func(s *rollback.Mark) { s.Fenced = is })
}

// announceRollback records in the database, once, that this process found it rolled back. It does not if one of this
// process's own files was rolled back.
func (d *members) announceRollback(ctx context.Context) error {
	back := d.rollbackLatch.StateRollback()
	if d.engine.alone() || d.vault == nil || d.announced.Load() || !back.storeRolledBack() {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	err = d.transact(ctx, func(tx *transaction) error {
		peers, err := tx.memberTx().peers()
		if err != nil {
			return err
		}
		return tx.memberTx().enlist(peer{file: name, scan: latest(peers) + 1, standing: halted})
	})
	if err != nil {
		return fmt.Errorf("couldn't record the state rollback for other processes: %w", err)
	}
	d.announced.Store(true)
	return nil
}

// cutByAll returns [ErrUncut] until every other process has cut the batch or is fenced.
func (d *members) cutByAll(ctx context.Context, b BatchID) error {
	if d.engine.alone() {
		return nil
	}
	if !d.met.Load() {
		if _, err := d.reconciler.Reconcile(ctx); err != nil {
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
	return d.within(ctx, func(tx *transaction) error { return d.waitFor(tx, name, b) })
}

// waitFor returns [ErrUncut] while this process is not a member, or must wait for another one to cut the batch. It
// fences those that have been silent too long.
func (d *members) waitFor(t *transaction, name string, b BatchID) error {
	peers, err := t.memberTx().peers() // also locks: otherwise two processes could fence each other
	if err != nil {
		return err
	}
	if err := d.remembers(peers); err != nil {
		return err
	}
	if standingOf(peers, name) != member {
		return ErrUncut
	}
	cut, err := t.memberTx().cutBy(b)
	if err != nil {
		return fmt.Errorf("couldn't list other processes: %w", err)
	}
	waits := slices.DeleteFunc(others(peers, name), func(p peer) bool {
		return p.standing == fenced || slices.Contains(cut, p.file)
	})
	if slices.ContainsFunc(waits, func(p peer) bool { return !d.isSilent(p) }) {
		return ErrUncut
	}
	for _, p := range waits {
		if err := t.memberTx().fence(p); err != nil {
			return fmt.Errorf("couldn't fence another process: %w", err)
		}
	}
	return nil
}

// forget drops a state rollback and what is known about other processes, because the operator accepts the current
// store.
func (d *members) forget() {
	d.rollbackLatch.clear()
	d.announced.Store(false)
	d.membership.forget()
}
