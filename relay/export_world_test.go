package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// StoredBatch is a batch in a relay's store.
type StoredBatch struct {
	Epoch, Seq uint64
	Manifest   []byte
	Bytes      []byte // nil where it is confirmed
}

// Stored is what a relay's store holds of a task.
type Stored struct {
	Slots   map[uint64][][]byte // of open batches, by epoch
	Batches []StoredBatch
	Ends    map[uint64][]byte
}

var errLooked = errors.New("only looked at")

// StoredOf reads what a relay that is not running holds of a task.
func StoredOf(r *Relay, id task.ID) (*Stored, error) {
	ctx := context.Background()
	all, err := r.store.Progress(ctx)
	if err != nil {
		return nil, err
	}
	out := &Stored{Slots: map[uint64][][]byte{}, Ends: map[uint64][]byte{}}
	for _, p := range all {
		if p.ID.Task != id {
			continue
		}
		if out.Ends[p.ID.Epoch], err = r.store.End(ctx, p.ID); err != nil {
			return nil, err
		}
		open := map[uint64]bool{}
		for _, b := range p.Open {
			open[b.Seq] = true
			err := r.store.Seal(ctx, b.BatchID, func(_ uint64, rows iter.Seq2[store.Row, error], _ store.Put) (
				*store.Made, error) {
				for row, err := range rows {
					if err != nil {
						return nil, err
					}
					out.Slots[b.Epoch] = append(out.Slots[b.Epoch], row.Slot)
				}
				return nil, errLooked
			})
			if !errors.Is(err, errLooked) {
				return nil, err
			}
		}
		for seq := range p.Next {
			if open[seq] {
				continue
			}
			b, err := r.store.Batch(ctx, p.ID.Batch(seq))
			if err != nil {
				return nil, err
			}
			var raw []byte
			if !b.Confirmed {
				if raw, err = io.ReadAll(b.Content); err != nil {
					return nil, err
				}
			}
			out.Batches = append(out.Batches, StoredBatch{p.ID.Epoch, seq, b.Manifest, raw})
		}
	}
	return out, nil
}

// The bugs that [Plant] knows.
const (
	BugAckEarly    = "ack before commit"
	BugTwice       = "duplicate release"
	BugReplays     = "replay set lost"
	BugQuota       = "quota doubled"
	BugSpent       = "token spent twice"
	BugSmall       = "below-minimum release"
	BugConfirm     = "lost confirmation"
	BugEquivocates = "equivocation accepted"
	BugClock       = "a clock that leaps is believed"
	BugNumbers     = "numbers beyond the task's are taken"
	BugEndless     = "destroyed batches are not counted"
	BugJunk        = "answers are read to their end"
)

// Plant gives a relay that is not running a bug, for worlds to find.
func Plant(r *Relay, bug string) {
	switch bug {
	case BugSmall:
		for _, s := range r.hosted().order {
			open, of := *s.Open, *s.Task
			of.Batch.Size, of.Batch.Min = 2, 1
			open.Task, s.Open = &of, &open
		}
	case BugNumbers:
		for _, s := range r.hosted().order {
			open, of := *s.Open, *s.Task
			of.Epochs.Count += 2
			open.Task, s.Open = &of, &open
		}
	case BugJunk:
		for _, s := range r.hosted().order {
			s.upstream = handover.NewClient(s.sign, greedy{r.outgoing})
		}
	case BugClock:
		first := r.cfg.Clock().Round(0)
		r.clock, _ = clock.New(clock.Options{Wall: r.cfg.Clock, Ends: r.manyEnd, // which passes as the clock does
			Elapsed: func() time.Duration { return r.cfg.Clock().Round(0).Sub(first) }})
	default:
		r.store = &buggy{Store: r.store, bug: bug}
	}
}

// greedy reads answers whole before anybody looks at them.
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
	store.Store
	bug  string
	late []*store.Submission // acknowledged, and not yet stored
	old  *store.Row          // one that came out
}

func (b *buggy) Commit(ctx context.Context, group []*store.Submission) (bool, error) {
	for i, sub := range group {
		switch b.bug {
		case BugQuota:
			sub.Quota *= 2
		case BugSpent:
			sub.Client[0] ^= byte(i + 1)
			sub.Client[1] ^= sub.Tag[0]
		}
	}
	if b.bug != BugAckEarly {
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
	if b.bug != BugTwice {
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
	if b.bug != BugReplays {
		return b.Store.Mix(ctx, ref, tags, build)
	}
	return b.Store.Mix(ctx, ref, tags, func(_ *store.Fresh, put store.Put) (*store.Made, error) {
		return build(&store.Fresh{}, put)
	})
}

func (b *buggy) Confirm(ctx context.Context, ref store.BatchID) error {
	if b.bug == BugConfirm {
		return nil
	}
	return b.Store.Confirm(ctx, ref)
}

func (b *buggy) Destroyed(ctx context.Context, id store.EpochID) (uint64, error) {
	if b.bug == BugEndless {
		return 0, nil
	}
	return b.Store.Destroyed(ctx, id)
}

func (b *buggy) Witness(ctx context.Context, ref store.BatchID, s *onion.SignedManifest) error {
	if b.bug == BugEquivocates {
		return nil
	}
	return b.Store.Witness(ctx, ref, s)
}
