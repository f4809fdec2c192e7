package handout

import (
	"context"
	"errors"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/handover"
)

// Only the next hop can show that the store, the secret and the keys were rolled back together to one moment. Its pull
// is signed, and it asks for a number only once it has all earlier batches. If one of these has not begun here, or is
// still open, this relay has lost the batch and its list of clients that reported. Or the next hop lies, but it can
// stop the epoch anyway. The request also has a hash of all earlier manifests, so it shows a number that was made again
// as another batch. After a rollback the relay does nothing more in that epoch until the operator has restored newer
// files or ended it.

// checkBegun returns RolledBackProblem if a pull shows that the next hop knows more of the epoch than the store. An
// epoch that has not begun cannot be rolled back.
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

// checkHistory returns RolledBackProblem if the epoch was rolled back, or if the next hop has an earlier batch that
// differs from this relay's or that this relay has not made.
func (out *Server) checkHistory(ctx context.Context, b tasks.BatchRef, before handover.HistoryDigest) error {
	if err := b.CheckServable(); err != nil {
		return err
	}
	if b.Seq == 0 || before == (handover.HistoryDigest{}) {
		return nil
	}
	hashes, err := b.Made.Below(b.Number, b.Seq, func(seq uint64) ([]byte, error) {
		manifest, _, err := out.Store.Manifest(ctx, b.ID().Batch(seq))
		return manifest, err
	})
	if errors.Is(err, store.ErrNoBatch) {
		return out.checkBegun(ctx, b) // nil where it has expired
	}
	if err != nil || hashes.Matches(before) {
		return err
	}
	return out.foundRolledBack(ctx, b)
}

func (out *Server) foundRolledBack(ctx context.Context, b tasks.BatchRef) error {
	b.SetRolledBack()
	return errors.Join(tasks.RolledBackProblem(), out.epochs.Note(ctx, b, tasks.FindRolledBack))
}
