package handout

import (
	"context"
	"errors"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/handover"
)

// The next hop's memory shows what nothing here can: that the store, the secret and the keys were set back
// together, to one moment. The number that it asks for is signed, and it asks for one only when it has had
// the batches before. If one of these was not begun here, or is still open, this relay has forgotten them, and with
// them who has reported; or the next hop lies, which can stop the epoch whatever it says. The request also has a
// hash of all manifests before, so that it shows, too, where a number is there again and is another batch. So
// nothing more is taken, made or handed out in that epoch, until the operator has put back what is newer, or ended
// the epochs.

// checkBegun is RolledBackProblem in an epoch of which the next hop knows more than the store, as its pull of a
// number tells. An epoch that has not begun here has nothing to be behind.
func (out *Server) checkBegun(ctx context.Context, b tasks.BatchRef) error {
	if err := b.CheckServable(); err != nil {
		return err
	}
	start, _ := b.Window()
	if out.Clock.Read().Latest.Before(start) {
		return nil
	}
	sealed, err := out.Store.SealedBelow(ctx, b.BatchID())
	if err != nil || sealed {
		return err
	}
	return out.foundRolledBack(ctx, b)
}

// checkHistory is RolledBackProblem in an epoch that is behind, or where the next hop has had another batch of a number
// before this one, or one that is not made yet.
func (out *Server) checkHistory(ctx context.Context, b tasks.BatchRef, before handover.HistoryDigest) error {
	if err := b.CheckServable(); err != nil {
		return err
	}
	if b.Seq == 0 || before == (handover.HistoryDigest{}) {
		return nil
	}
	had, err := b.Made.Below(b.Number, b.Seq, func(seq uint64) ([]byte, error) {
		manifest, _, err := out.Store.Manifest(ctx, b.ID().Batch(seq))
		return manifest, err
	})
	if errors.Is(err, store.ErrNoBatch) {
		return out.checkBegun(ctx, b) // nil where it has expired
	}
	if err != nil || had.Matches(before) {
		return err
	}
	return out.foundRolledBack(ctx, b)
}

func (out *Server) foundRolledBack(ctx context.Context, b tasks.BatchRef) error {
	b.SetRolledBack()
	return errors.Join(tasks.RolledBackProblem(), out.epochs.Note(ctx, b, tasks.FindRolledBack))
}
