package mixing

import (
	"bytes"
	"context"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/onion"
)

// Orders returns a function that makes a mixer, or its maker, produce a batch of n slots in each lane, with the code
// that makes real batches but a store that keeps nothing. The function returns the order of each lane's slots, which
// came in as 0, 1, … A mix needs source, the upstream batch's manifest.
func Orders(mx *Mixer, n int, source *onion.SignedManifest) func() ([][]int, error) {
	s, made := mx.Hosted().Order[0], &builder{submissions: uint64(n)}
	mx.maker.Store, mx.Store = made, made
	slot := func(i int) []byte {
		out := make([]byte, s.Layout.SlotSize(s.Hop+1))
		out[0] = byte(i)
		return out
	}
	for lane := range int(s.Slots.Lanes) {
		for i := range n {
			made.rows = append(made.rows, store.Row{Lane: lane, Slot: slot(i)})
		}
	}
	var before *onion.Manifest // opened once: checking a signature takes long
	var openErr error
	if s.Hop > 0 {
		before, openErr = source.Open(s.Task, s.Hop-1)
	}
	return func() (orders [][]int, err error) {
		if openErr != nil {
			return nil, openErr
		}
		made.bytes.Reset()
		if s.Hop == 0 {
			err = mx.maker.Seal(context.Background(), s.Epoch(0).Ref(0))
		} else {
			err = mx.mixRows(s, source, before, made.rows)
		}
		if err != nil {
			return nil, err
		}
		batch, err := onion.ParseBatch(append(made.head, made.bytes.Bytes()...))
		if err != nil {
			return nil, err
		}
		for _, lane := range batch.Ciphertexts {
			var order []int
			for _, slot := range lane {
				order = append(order, int(slot[0]))
			}
			orders = append(orders, order)
		}
		return orders, nil
	}
}

// mixRows mixes rows as if they were opened slots of an upstream batch.
func (mx *Mixer) mixRows(s *tasks.Hosted, source *onion.SignedManifest, m *onion.Manifest, rows []store.Row) error {
	o, err := mx.newIncoming(s.Epoch(0))
	if err != nil {
		return err
	}
	defer o.close()
	o.manifest = m
	if err := o.begin(); err != nil {
		return err
	}
	for i, row := range rows {
		tag := store.Short{byte(i)}
		o.tags = append(o.tags, tag)
		if err := o.add(isSlot, row.Lane, tag, row.Slot); err != nil {
			return err
		}
	}
	return mx.mixBatch(context.Background(), s, source, o)
}

// builder is a store that builds batches in memory.
type builder struct {
	Store
	SealStore
	submissions uint64
	rows        []store.Row
	head        []byte
	bytes       bytes.Buffer // the batch without its head
}

func (b *builder) put(piece []byte) error {
	b.bytes.Write(piece)
	return nil
}

func (b *builder) made(m *store.Made, err error) error {
	if err == nil {
		b.head = m.Head
	}
	return err
}

func (b *builder) Seal(_ context.Context, _ store.BatchID, build store.SealFunc) error {
	return b.made(build(b.submissions, func(yield func(store.Row, error) bool) {
		for _, row := range b.rows {
			if !yield(row, nil) {
				return
			}
		}
	}, b.put))
}

func (b *builder) Mix(_ context.Context, _ store.BatchID, _ []store.Short, build store.MixFunc) error {
	return b.made(build(&store.Fresh{}, b.put))
}
