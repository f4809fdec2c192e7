package mixing

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/spill"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
)

// batchDraft is a batch that is being made.
type batchDraft struct {
	tasks.BatchRef
	submissions uint64
	in          []uint64 // slots that came in, by lane
	dummies     uint64   // that were added, in the first lane
	source      *onion.SignedManifest
}

// SealStore keeps the batches that are made of reports.
type SealStore interface {
	Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error
	SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error
}

// Maker permutes, signs and withholds this relay's batches.
type Maker struct {
	Store   SealStore
	Memory  int // bytes of slots that are permuted without a file
	monitor *monitor.Monitor
	scratch string // the folder for what memory does not hold
}

// NewMaker returns a maker that permutes large batches in a folder. The caller sets its store.
func NewMaker(monitor *monitor.Monitor, scratch string) *Maker {
	return &Maker{monitor: monitor, scratch: scratch, Memory: spill.Memory}
}

// signBatch signs the slots given to a writer.
func (bm *Maker) signBatch(m *batchDraft, w *onion.BatchWriter) (*store.Made, error) {
	added := make([]uint64, len(m.in))
	if w.Filled() {
		added[0] = m.dummies
	}
	signed, head, err := w.Finish(m.Sign, onion.BatchDraft{
		Context: m.Context(), Seq: m.Seq, Submissions: m.submissions, In: m.in, Added: added, Source: m.source,
	})
	if err != nil {
		return nil, err
	}
	return &store.Made{Manifest: signed.Manifest, Head: head}, nil
}

// destroy makes a batch that has no slots.
func (bm *Maker) destroy(m *batchDraft) (*store.Made, error) {
	made, err := bm.signBatch(m, onion.NewBatchWriter(len(m.in), nil))
	if err == nil {
		made.Withheld = true
	}
	return made, err
}

// countBatch counts a batch that was made.
func (bm *Maker) countBatch(s *tasks.Hosted, destroyed bool) {
	if destroyed {
		bm.monitor.BatchDestroyed(s.ShortID())
	} else {
		bm.monitor.BatchReleased(s.ShortID())
	}
}

// shuffle returns a shuffle of slots of size bytes, with the expected number of slots per lane.
func (bm *Maker) shuffle(size int, expect []uint64) (*spill.Shuffle, error) {
	return spill.New(bm.scratch, size, expect, bm.Memory)
}

// incomingBatch is a batch of the upstream relay during its transfer. Its slots are opened chunk by chunk, and go to a
// shuffle after their tags.
type incomingBatch struct {
	maker    *Maker
	e        tasks.Epoch
	opener   *onion.Opener
	key      *store.EpochKey
	manifest *onion.Manifest
	slots    *spill.Shuffle // nil before the first
	tags     []store.Short
}

// newIncoming returns an incoming batch of an epoch. Without a key it opens nothing.
func (mx *Mixer) newIncoming(e tasks.Epoch) (o *incomingBatch, err error) {
	o = &incomingBatch{maker: mx.maker, e: e}
	o.opener, err = e.Opener()
	if errors.Is(err, keyfile.ErrErased) {
		return o, nil
	}
	if err == nil {
		o.key, err = mx.vault.EpochKey(e.ID())
	}
	return o, err
}

// The head of what an incoming batch gives to its shuffle: a byte that says whether it is a slot, and the slot's tag.
const (
	recordHead = 1 + len(store.Short{})
	isDummy    = 0
	isSlot     = 1
)

// begin creates the shuffle for the slots that the manifest counts. The hashes of all chunks must be here, so that the
// counts do not exceed what was sent.
func (o *incomingBatch) begin() (err error) {
	if o.slots != nil {
		return nil
	}
	expect := counts(o.manifest, o.e.Task)
	o.tags = make([]store.Short, 0, total(expect))
	o.slots, err = o.maker.shuffle(recordHead+o.e.Layout.SlotSize(o.e.Hop+1), expect)
	return err
}

// take opens a chunk's slots.
func (o *incomingBatch) take(lane int, slots [][]byte) error {
	if o.opener == nil { // no key: the batch is refused after its transfer
		return nil
	}
	if err := o.begin(); err != nil {
		return err
	}
	opened, err := openAll(o.opener, o.key, lane, slots)
	if err != nil {
		return err
	}
	for _, slot := range opened {
		if slot.next == nil {
			continue
		}
		o.tags = append(o.tags, slot.tag)
		if err := o.add(isSlot, lane, slot.tag, slot.next); err != nil {
			return err
		}
	}
	return nil
}

func (o *incomingBatch) add(kind byte, lane int, tag store.Short, slot []byte) error {
	record := make([]byte, 0, recordHead+len(slot))
	return o.slots.Add(lane, append(append(append(record, kind), tag[:]...), slot...))
}

// close forgets the slots.
func (o *incomingBatch) close() {
	if o.slots != nil {
		o.slots.Close()
	}
}

// write writes fresh slots and dummies in a uniformly random order, and counts the slots of each lane and the replays.
func (o *incomingBatch) write(fresh *store.Fresh, w *onion.BatchWriter) (valid []uint64, repeats int, err error) {
	valid = make([]uint64, o.e.Slots.Lanes)
	err = o.slots.Each(func(lane int, record []byte) error {
		if record[0] == isSlot {
			if !fresh.Take(store.Short(record[1:recordHead])) {
				repeats++
				return nil
			}
			valid[lane]++
		}
		return w.Add(lane, record[recordHead:])
	})
	return valid, repeats, err
}

// openedSlot is a slot that opened. One key opens one ciphertext to one tag, so the tag alone
// identifies a replayed ciphertext.
type openedSlot struct {
	tag  store.Short
	next []byte // nil where it does not open
}

// openAll opens slots of a lane on all cores, with their tags hashed under an epoch's key. It returns
// [keyfile.ErrErased] if that key is erased meanwhile, so that no slot then counts as one that does not open.
func openAll(opener *onion.Opener, key *store.EpochKey, lane int, sealed [][]byte) ([]openedSlot, error) {
	all := make([]openedSlot, len(sealed))
	err := onAllCores(len(all), func(i int) (err error) {
		all[i], err = openOne(opener, key, lane, sealed[i])
		return err
	})
	return all, err
}

// onAllCores calls do for the numbers below n, and returns the first error, after which it skips some. It
// yields to requests between runs.
func onAllCores(n int, do func(i int) error) (err error) {
	const run = 64
	var next atomic.Int64
	var workers sync.WaitGroup
	var failed sync.Once
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for from := int(next.Add(run)) - run; from < n; from = int(next.Add(run)) - run {
				for i := from; i < min(from+run, n); i++ {
					if failure := do(i); failure != nil {
						failed.Do(func() { err = failure })
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	workers.Wait()
	return err
}

// openOne returns no slot where it does not open.
func openOne(opener *onion.Opener, key *store.EpochKey, lane int, sealed []byte) (o openedSlot, err error) {
	tag, next, err := opener.OpenSlot(lane, sealed)
	if errors.Is(err, keyfile.ErrErased) {
		return o, err
	}
	if err == nil {
		o.next, o.tag = next, key.Tag(tag[:])
	}
	return o, nil
}

// Withholds says whether an open batch would be destroyed if sealed now: that frees space.
func Withholds(s *tasks.Hosted, b store.OpenBatch) bool {
	in := slices.Repeat([]uint64{min(b.Submissions*s.Slots.PerLane, s.MostSlots())}, int(s.Slots.Lanes))
	return onion.CheckCounts(s.Task, b.Submissions, in) != nil
}

// Seal permutes an open batch and signs it. One with fewer than n submissions is destroyed: its
// manifest says how many there were, and nothing leaves.
func (bm *Maker) Seal(ctx context.Context, b tasks.BatchRef) error {
	return bm.seal(ctx, b, bm.Store.Seal)
}

// SealWithheld is Seal of a batch that will be destroyed: see [Withholds].
func (bm *Maker) SealWithheld(ctx context.Context, b tasks.BatchRef) error {
	return bm.seal(ctx, b, bm.Store.SealWithheld)
}

// seal is Seal; do is the store's Seal or SealWithheld.
func (bm *Maker) seal(
	ctx context.Context, b tasks.BatchRef, do func(context.Context, store.BatchID, store.SealFunc) error,
) error {
	begun := time.Now()
	destroyed := false
	err := do(ctx, b.BatchID(), func(submissions uint64, rows iter.Seq2[store.Row, error], put store.Put) (
		*store.Made, error) {
		slots, in, err := bm.collect(b.Hosted, submissions, rows)
		if err != nil {
			return nil, err
		}
		defer slots.Close()
		m := &batchDraft{BatchRef: b, submissions: submissions, in: in}
		if destroyed = onion.CheckCounts(b.Task, submissions, in) != nil; destroyed {
			return bm.destroy(m)
		}
		dummies, err := drawDummies(b.Epoch) // here, where a second try draws anew
		if err != nil {
			return nil, err
		}
		m.dummies = uint64(len(dummies))
		for _, dummy := range dummies {
			if err := slots.Add(0, dummy); err != nil {
				return nil, err
			}
		}
		w := onion.NewBatchWriter(len(in), put)
		if err := slots.Each(w.Add); err != nil {
			return nil, err
		}
		return bm.signBatch(m, w)
	})
	if err != nil {
		return err
	}
	bm.monitor.Since(monitor.Seal, begun)
	bm.countBatch(b.Hosted, destroyed)
	bm.monitor.Log.Info("batch sealed", "task", b.ShortID(), "epoch", b.Number, "batch", b.Seq, "destroyed", destroyed)
	return nil
}

// collect gives the rows of an open batch to a shuffle, and counts them by lane. The caller closes the shuffle.
func (bm *Maker) collect(s *tasks.Hosted, submissions uint64, rows iter.Seq2[store.Row, error]) (
	slots *spill.Shuffle, in []uint64, err error) {
	in = make([]uint64, s.Slots.Lanes)
	expect := slices.Repeat([]uint64{min(submissions*s.Slots.PerLane, s.MostSlots())}, len(in))
	if slots, err = bm.shuffle(s.Layout.SlotSize(1), expect); err != nil {
		return nil, nil, err
	}
	for row, err := range rows {
		if err == nil {
			in[row.Lane]++
			err = slots.Add(row.Lane, row.Slot)
		}
		if err != nil {
			return nil, nil, errors.Join(err, slots.Close())
		}
	}
	return slots, in, nil
}
