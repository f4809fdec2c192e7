package handout

import (
	"context"
	"errors"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/handover"
)

// If the store, the secret and the keys of this relay were rolled back together to one moment, only the next hop can
// show it. Its pulls are signed, and it asks for a batch number only when it has all earlier batches. If one of these
// has not begun here or is still open, this relay has lost that batch and the list of clients that reported in it. (The
// next hop may lie, but it can stop the epoch anyway.) A pull also contains a digest of all earlier manifests, which
// shows if this relay made one of these batches again with other content. After such a rollback the relay does nothing
// more in the epoch until the operator restores newer files or ends it.

// checkBegun returns RolledBackProblem if a pull shows that the next hop has batches that the store lacks. An epoch
// that has not begun cannot be rolled back.
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
// this relay lacks or has with other content. before is the next hop's digest.
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
		return out.checkBegun(ctx, b) // nil if the epoch has expired
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
