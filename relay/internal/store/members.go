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

// Several processes may share a PostgreSQL database, each with its own marks. A process hands out a batch only after
// every process has cut the batch's leaf in its marks. Otherwise a process that survives, or returns, beside a rolled
// back database could make another batch with that number. A process that is silent for [fenceAfter] is fenced: the
// others continue without it. It hands out nothing until it has caught up beside a process that was never fenced.
//
//	the maker crashes            the restart, or another process, sees      and does
//	before its own cut           a batch that is not cut                    cuts, waits for all, serves
//	before the others' cuts      a batch that is cut here alone             the same
//	after the first byte         a batch that all have cut                  serves the same bytes; where the
//	                                                                        database was rolled back: error
//
// A fenced process that returns, and a new one beside others, joins in three scans of the store. A scan is one
// [Store.Reconcile].
//
//	1  It is joining: from here on the others wait for its cuts. It hands out nothing yet.
//	2  It cuts all batches in the store. What the others have handed out without it was made before 1, and is in
//	   the store unless the database was rolled back since.
//	3  It is a member if another member has begun a scan after 2 and found no state rollback: a member has cut
//	   all that was ever handed out.
//
// A process that sees that it was fenced records that in its secret's mark until it is a member again. A database that
// does not know of the fence was rolled back. A member that restarts is a member at once, as the others have waited for
// it all the time. So is the very first process.
//
// A process that was away, and never saw that it was fenced, is still a member in a database that was rolled back to
// before the fence. The others know better: a process that finds the rollback records it in the database (halted) and
// stops all. No process is fenced before it had [fenceAfter] to record that, by the clock of the process that waits,
// and only while that process scanned the store itself. docs/threat-model.md names the case that this cannot
// detect: all processes that know are gone.
//
// Scans are numbered instead of timed, because the database's clock may be changed. A process that has
// seen a number which the database has forgotten knows that the database was rolled back.

// members is the part of a store that keeps the processes which share it from handing out batches that the others do
// not know.
type members struct {
	*database
	membership
	reconciler *reconciler
	announced  atomic.Bool      // this process has recorded the state rollback in the database
	recorded   map[BatchID]bool // in the database; reconciler.reconcileMu guards it and caught
	caught     uint64           // the scan at which this process had caught up while joining; 0 for not yet
}

// ErrUncut says that another process has not cut the number of a batch yet.
var ErrUncut = errors.New("waiting for another process to record the batch")

// Joins is [Store.Joining] for the process with vault v, read from the database. It takes every member for running.
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

// clock returns the highest scan number.
func (d *members) clock(ctx context.Context) (uint64, error) {
	if d.engine.alone() {
		return 0, nil
	}
	return processTable{d.database}.highest(ctx)
}

// announce records this process's scan in the database, and the batches that it has cut. begun is the highest scan
// number when this scan began.
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
		if err := tx.memberTx().enlist(me); err != nil {
			return err
		}
		return tx.memberTx().recordCuts(name, all, d.recorded, held)
	})
	if err != nil {
		return fmt.Errorf("couldn't record this process's heartbeat: %w", err)
	}
	d.recorded, d.caught = held, caught
	d.listen(me, others(peers, name), time.Now())
	return nil
}

// keepFence returns this process's standing so far. A process that has seen that it was fenced stays fenced until it is
// a member again. keepFence returns a [StateRollbackError] if the database does not know of the fence and an epoch of
// this process is not over. The caller has locked the peers: processes with one secret share the mark.
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

// recordFence records in the secret's mark whether this process is fenced.
func (d *members) recordFence(is bool) error {
	file := &guard{MarkFile: d.vault.file.Mark(), kind: kindSecret}
	if file.state().Fenced == is {
		return nil
	}
	return file.Change(func(s *rollback.Mark) { s.Fenced = is })
}

// announceRollback records in the database that it was rolled back, once. It does so only if the database was rolled
// back, not one of this process's own files.
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

// cutByAll returns [ErrUncut] until every process has cut the batch or was fenced. This process has cut it.
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

// waitFor returns [ErrUncut] while this process is not a member, or waits for another one. It fences processes that
// have been silent for too long.
func (d *members) waitFor(t *transaction, name string, b BatchID) error {
	peers, err := t.memberTx().peers() // one process at a time, or two could fence each other
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

// forget lets this process continue with the current store.
func (d *members) forget() {
	d.rollbackLatch.clear()
	d.announced.Store(false)
	d.membership.forget()
}
