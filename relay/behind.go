package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
)

// The next hop's memory shows what nothing here can: that the store, the secret and the keys were set back
// together, to one moment. The number that it asks for is signed, and it asks for one only when it has had
// the batches before. If one of these was not begun here, or is still open, this relay has forgotten them, and with
// them who has reported; or the next hop lies, which can stop the epoch whatever it says. The request also has a
// hash of all manifests before, so that it shows, too, where a number is there again and is another batch. So
// nothing more is taken, made or handed out in that epoch, until the operator has put back what is newer, or ended
// the epochs.

// findBehind is kept on such an epoch.
const findBehind Reason = "the next hop has had a batch that is not here: everything was set back"

// errBehind is the problem of such an epoch.
func errBehind() error { return problem.New(problem.SetBack, "%s", findBehind).Retry(setBackRetry) }

// checkBehind is errBehind in an epoch of which the next hop knows more than the store, as its pull of a
// number tells. An epoch that has not begun here has nothing to be behind.
func (r *Relay) checkBehind(ctx context.Context, b batchRef) error {
	if err := b.CheckServable(); err != nil {
		return err
	}
	start, _ := b.Window()
	if r.clock.Read().Latest.Before(start) {
		return nil
	}
	sealed, err := r.store.SealedBelow(ctx, b.BatchID())
	if err != nil || sealed {
		return err
	}
	return r.nowBehind(ctx, b)
}

// checkBefore is errBehind in an epoch that is behind, or where the next hop has had another batch of a number
// before this one, or one that is not made yet.
func (r *Relay) checkBefore(ctx context.Context, b batchRef, before handover.Before) error {
	if err := b.CheckServable(); err != nil {
		return err
	}
	if b.Seq == 0 || before == (handover.Before{}) {
		return nil
	}
	had, err := b.made.below(b.Number, b.Seq, func(seq uint64) ([]byte, error) {
		manifest, _, err := r.store.Manifest(ctx, b.ID().Batch(seq))
		return manifest, err
	})
	if errors.Is(err, store.ErrNoBatch) {
		return r.checkBehind(ctx, b) // nil where it has expired
	}
	if err != nil || had.Agrees(before) {
		return err
	}
	return r.nowBehind(ctx, b)
}

func (r *Relay) nowBehind(ctx context.Context, b batchRef) error {
	b.SetRolledBack()
	return errors.Join(errBehind(), r.note(ctx, b, findBehind))
}

// loadBehind takes note of what this process, or another one on the store, has found before.
func (r *Relay) loadBehind(ctx context.Context) error {
	all, err := r.store.Findings(ctx)
	for _, f := range all {
		if s := r.hosted().tasks[f.ID.Task]; s != nil && f.Reason == findBehind {
			s.Epoch(f.ID.Epoch).SetRolledBack()
		}
	}
	return err
}

// endBehind ends what must not be kept of such an epoch: its keys, when it is over, and the rest when its
// retention is.
func (r *Relay) endBehind(ctx context.Context, e hostedEpoch, end time.Time) error {
	read := r.clock.Read()
	if !read.Over(end) {
		return nil
	}
	if err := r.forget(e); err != nil || !read.Over(end.Add(r.cfg.Retention)) {
		return err
	}
	return r.expireEpoch(ctx, e)
}

// CheckServable is the problem of an epoch of which nothing is to be looked up: it is behind, or the operator has
// ended it, which forgets its batches on purpose.
func (e hostedEpoch) CheckServable() error {
	switch {
	case e.State() == store.StateEnded:
		return ended()
	case e.RolledBack():
		return errBehind()
	}
	return nil
}

func (e hostedEpoch) RolledBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.behind[e.Number]
}

func (e hostedEpoch) SetRolledBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behind[e.Number] = true
}
