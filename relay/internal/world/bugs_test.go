package world_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// The bugs that [plantIn] can plant.
const (
	bugAckEarly    = "ack before commit"
	bugTwice       = "duplicate release"
	bugReplays     = "replay set lost"
	bugQuota       = "quota doubled"
	bugSpent       = "token spent twice"
	bugSmall       = "below-minimum release"
	bugConfirm     = "lost confirmation"
	bugEquivocates = "equivocation accepted"
	bugClock       = "a clock that leaps is believed"
	bugNumbers     = "numbers beyond the task's are taken"
	bugEndless     = "destroyed batches are not counted"
	bugJunk        = "answers are read to their end"
	bugForgets     = "visitors' devices forget their allowances"

	bugTables         = "a set's tables lose slots"
	bugForgetsEvents  = "browsers forget a set's events"
	bugForgetsReports = "browsers forget a set's reports"
	bugForgetsDays    = "browsers forget a set's days"
)

// plantIn changes a relay's configuration so that it has a bug, which worlds must find; "" is none. It also makes every
// relay count some batches of each epoch as destroyed from the start, so that a world can reach the limit.
func plantIn(cfg *relay.Config, bug string) {
	cfg.Seam = &storage.Seam{Store: func(kept *store.Store, all *storage.Stores) {
		before := &destroyedBefore{kept, onion.DestroyedAllowance - worldAllowance}
		all.Mixes = before
		if bug == "" {
			return
		}
		b := &buggy{destroyedBefore: before, bug: bug}
		all.Ingress, all.Seals, all.Mixes, all.Epochs, all.Handout = b, b, b, b, b
	}}
	switch bug {
	case bugSmall:
		cfg.Seam.Task = func(t *task.Task) { t.Batch.Size, t.Batch.Min = 2, 1 }
	case bugNumbers:
		cfg.Seam.Task = func(t *task.Task) { t.Epochs.Count += 2 }
	case bugJunk:
		cfg.Seam.Transport = func(to http.RoundTripper) http.RoundTripper { return greedy{to} }
	case bugClock:
		wall := cfg.Clock
		first := wall().Round(0)
		cfg.Elapsed = func() time.Duration { return wall().Round(0).Sub(first) } // advances with the wrong clock
	}
}

// destroyedBefore is a store that counts n more batches of every epoch as destroyed than there are.
type destroyedBefore struct {
	*store.Store
	n uint64
}

func (d *destroyedBefore) Destroyed(ctx context.Context, id store.EpochID) (uint64, error) {
	n, err := d.Store.Destroyed(ctx, id)
	return n + d.n, err
}

// greedy reads every answer to its end before the caller sees it.
type greedy struct{ http.RoundTripper }

func (g greedy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// buggy is a store with a bug.
type buggy struct {
	*destroyedBefore
	bug  string
	late []*store.Submission // acknowledged, but not stored yet
	old  *store.Row          // a slot that was released before
}

func (b *buggy) Commit(ctx context.Context, group []*store.Submission) (bool, error) {
	for i, sub := range group {
		switch b.bug {
		case bugQuota:
			sub.Quota *= 2
		case bugSpent:
			sub.Client[0] ^= byte(i + 1)
			sub.Client[1] ^= sub.Tag[0]
		case bugTables:
			for i := range sub.Others {
				sub.Others[i].Open = sub.Others[i].Open && sub.Tag[i]%8 > 0
			}
		}
	}
	if b.bug != bugAckEarly {
		return b.Store.Commit(ctx, group)
	}
	before := b.late
	b.late = group
	if len(before) == 0 {
		return false, nil
	}
	copied := make([]*store.Submission, len(before))
	for i, sub := range before {
		one := *sub
		copied[i] = &one
	}
	return b.Store.Commit(ctx, copied)
}

func (b *buggy) Seal(ctx context.Context, ref store.BatchID, build store.SealFunc) error {
	if b.bug != bugTwice {
		return b.Store.Seal(ctx, ref, build)
	}
	return b.Store.Seal(ctx, ref, func(n uint64, rows iter.Seq2[store.Row, error], put store.Put) (
		*store.Made, error) {
		return build(n, func(yield func(store.Row, error) bool) {
			old := b.old
			for row, err := range rows {
				kept := row
				if old != nil {
					row = *old
				}
				b.old, old = &kept, nil
				if !yield(row, err) {
					return
				}
			}
		}, put)
	})
}

func (b *buggy) Mix(ctx context.Context, ref store.BatchID, tags []store.Short, build store.MixFunc) error {
	if b.bug != bugReplays {
		return b.Store.Mix(ctx, ref, tags, build)
	}
	return b.Store.Mix(ctx, ref, tags, func(_ *store.Fresh, put store.Put) (*store.Made, error) {
		return build(&store.Fresh{}, put)
	})
}

func (b *buggy) Confirm(ctx context.Context, ref store.BatchID) error {
	if b.bug == bugConfirm {
		return nil
	}
	return b.Store.Confirm(ctx, ref)
}

func (b *buggy) Destroyed(ctx context.Context, id store.EpochID) (uint64, error) {
	if b.bug == bugEndless {
		return 0, nil
	}
	return b.destroyedBefore.Destroyed(ctx, id)
}

func (b *buggy) RecordManifest(ctx context.Context, ref store.BatchID, s *onion.SignedManifest) error {
	if b.bug == bugEquivocates {
		return nil
	}
	return b.Store.RecordManifest(ctx, ref, s)
}
