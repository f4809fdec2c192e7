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
//	                                                                        database was set back: [StateRollbackError]
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
// for it all the time; so is the first process of all.
//
// A process that was away, and never saw that it was fenced, is still a member of a database that was set back
// to before that. The others know better: whoever finds a set-back of the database says so in it (halted), and
// stops all. Nobody is fenced before he was given [fenceAfter] to say so, by the clock of the one who waits, and
// while that one was looking itself. What this does not tell is in docs/threat-model.md: that all who know are gone.
//
// Time is counted in looks, as the database's clock may be set: each look takes the next number. Who has seen a
// number that the database has forgotten knows that it was set back.

// members is the part of a store that keeps processes which share it from handing out what others do not know.
type members struct {
	*database
	membership
	reconciler *reconciler
	said       atomic.Bool      // the other processes have been told of what was set back
	told       map[BatchID]bool // what the others know that this process has cut; as caught, under reconciler.following
	caught     uint64           // the number of the look by which it had caught up as it was joining; 0 for not
}

// ErrUncut is returned for a batch whose number another process has not cut yet.
var ErrUncut = errors.New("another process has not taken note of the batch yet")

// Joins is what [Store.Joining] says of the process with a vault, but that it takes all members for running.
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

// clock returns the highest number of a look.
func (d *members) clock(ctx context.Context) (uint64, error) {
	if d.engine.alone() {
		return 0, nil
	}
	return processTable{d.database}.highest(ctx)
}

// meet has the others hear of this process, which has caught up with the store by a look that began after another
// one's of a number, and tells them which batches it has cut.
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
		me.looked = latest(peers) + 1
		me.standing, caught = stand(mine, others(peers, name), me.looked, d.caught)
		if err := d.recordFence(me.standing != member && mine != unknown); err != nil {
			return err
		}
		if err := tx.memberTx().enlist(me); err != nil {
			return err
		}
		return tx.memberTx().tell(name, all, d.told, held)
	})
	if err != nil {
		return fmt.Errorf("couldn't be heard of: %w", err)
	}
	d.told, d.caught = held, caught
	d.listen(me, others(peers, name), time.Now())
	return nil
}

// keepFence returns how this process counted so far: one that has seen that it was fenced is so until it is a member
// again. It is a [StateRollbackError] where the database does not know of that, and an epoch goes on that this process has a
// part in. The peers are locked: processes with one secret share the mark.
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
		return mine, &StateRollbackError{storeBehindSecret, "it does not know that the other processes went on without this one"}
	}
	return fenced, nil
}

// recordFence has the secret's mark say that this process was fenced, or no more.
func (d *members) recordFence(is bool) error {
	file := &guard{MarkFile: d.vault.file.Mark(), kind: kindSecret}
	if file.state().Fenced == is {
		return nil
	}
	return file.Change(func(s *rollback.Mark) { s.Fenced = is })
}

// say tells the other processes, in the database, that it was set back, once it can be told; that is true of what
// the database lacks, and not of this process's own files.
func (d *members) announceRollback(ctx context.Context) error {
	back := d.rollbackLatch.StateRollback()
	if d.engine.alone() || d.vault == nil || d.said.Load() || !back.storeRolledBack() {
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
		return tx.memberTx().enlist(peer{file: name, looked: latest(peers) + 1, standing: halted})
	})
	if err != nil {
		return fmt.Errorf("couldn't tell the other processes of the set-back: %w", err)
	}
	d.said.Store(true)
	return nil
}

// cutByAll is [ErrUncut] until all processes have cut a batch that this one has cut, or were fenced.
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

// waitFor is [ErrUncut] while this process is not a member, or waits for another. It fences those that it has waited
// for too long.
func (d *members) waitFor(t *transaction, name string, b BatchID) error {
	peers, err := t.memberTx().peers() // one at a time, or two could fence each other
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
		return fmt.Errorf("couldn't look for other processes: %w", err)
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

// forget has this process go on with the store as it is.
func (d *members) forget() {
	d.rollbackLatch.clear()
	d.said.Store(false)
	d.membership.forget()
}
