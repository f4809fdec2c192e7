package world_test

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// storedBatch is a batch in a relay's store.
type storedBatch struct {
	Epoch, Seq uint64
	Manifest   []byte
	Bytes      []byte // nil after the next hop's confirmation
}

// stored is a task's data in a relay's store.
type stored struct {
	Slots   map[uint64][][]byte // slots of open batches, by epoch
	Batches []storedBatch
	Ends    map[uint64][]byte
}

var errLooked = errors.New("only looked at")

func storedOf(kept *store.Store, id task.ID) (*stored, error) {
	ctx := context.Background()
	all, err := kept.Progress(ctx)
	if err != nil {
		return nil, err
	}
	out := &stored{Slots: map[uint64][][]byte{}, Ends: map[uint64][]byte{}}
	for _, p := range all {
		if p.ID.Task != id {
			continue
		}
		if out.Ends[p.ID.Epoch], err = kept.End(ctx, p.ID); err != nil {
			return nil, err
		}
		open := map[uint64]bool{}
		for _, b := range p.Open {
			open[b.Seq] = true
			err := kept.Seal(ctx, b.BatchID, func(_ uint64, rows iter.Seq2[store.Row, error], _ store.Put) (
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
			b, err := kept.Batch(ctx, p.ID.Batch(seq))
			if err != nil {
				return nil, err
			}
			var raw []byte
			if !b.Confirmed {
				if raw, err = io.ReadAll(b.Content); err != nil {
					return nil, err
				}
			}
			out.Batches = append(out.Batches, storedBatch{p.ID.Epoch, seq, b.Manifest, raw})
		}
	}
	return out, nil
}
