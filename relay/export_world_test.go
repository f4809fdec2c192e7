package relay

import (
	"context"
	"errors"

	"github.com/doona-dp/doona/relay/internal/store"
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
			err := r.store.Seal(ctx, b.ID, b.Seq, func(_ uint64, rows []store.Row) (*onion.Batch, error) {
				for _, row := range rows {
					out.Slots[b.ID.Epoch] = append(out.Slots[b.ID.Epoch], row.Slot)
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
			b, err := r.store.Batch(ctx, p.ID, seq)
			if err != nil {
				return nil, err
			}
			out.Batches = append(out.Batches, StoredBatch{p.ID.Epoch, seq, b.Manifest, b.Bytes})
		}
	}
	return out, nil
}
