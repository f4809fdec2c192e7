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

// batchDraft is a batch that this relay is making.
type batchDraft struct {
	tasks.BatchRef
	submissions uint64
	in          []uint64 // slots received, by lane
	dummies     uint64   // dummies that this relay added, all in the first lane
	source      *onion.SignedManifest
}

// SealStore stores the batches that a first relay makes of reports.
type SealStore interface {
	Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error
	SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error
}

// Maker permutes, signs and destroys this relay's batches.
type Maker struct {
	Store   SealStore
	Memory  int // the largest batch, in bytes of slots, that is permuted in memory
	monitor *monitor.Monitor
	scratch string // folder of files for larger batches
}

// NewMaker returns a maker that permutes large batches in files in the folder scratch. The caller sets Store.
func NewMaker(monitor *monitor.Monitor, scratch string) *Maker {
	return &Maker{monitor: monitor, scratch: scratch, Memory: spill.Memory}
}

// signBatch signs the batch whose slots were written to w.
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

// destroy signs a manifest for a batch without slots.
func (bm *Maker) destroy(m *batchDraft) (*store.Made, error) {
	made, err := bm.signBatch(m, onion.NewBatchWriter(len(m.in), nil))
	if err == nil {
		made.Withheld = true
	}
	return made, err
}

func (bm *Maker) countBatch(s *tasks.Hosted, destroyed bool) {
	if destroyed {
		bm.monitor.BatchDestroyed(s.Series())
	} else {
		bm.monitor.BatchReleased(s.Series())
	}
}

// shuffle returns a shuffle for slots of size bytes each; expect is the expected number of slots per lane.
func (bm *Maker) shuffle(size int, expect []uint64) (*spill.Shuffle, error) {
	return spill.New(bm.scratch, size, expect, bm.Memory)
}

// incomingBatch is a batch that this relay is receiving from the upstream relay. It opens the slots chunk by chunk, and
// adds each opened slot, after its tag, to a shuffle.
type incomingBatch struct {
	maker    *Maker
	e        tasks.Epoch
	opener   *onion.Opener
	key      *store.EpochKey
	manifest *onion.Manifest
	slots    *spill.Shuffle // nil before the first slot
	tags     []store.Short
}

// newIncoming returns an incoming batch of an epoch. If the epoch's key is erased, the batch opens no slot.
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

// An incoming batch adds records to its shuffle. The head of a record is a byte for its kind, slot or dummy, and the
// slot's tag.
const (
	recordHead = 1 + len(store.Short{})
	isDummy    = 0
	isSlot     = 1
)

// begin creates the shuffle for as many slots as the manifest counts. Call it after the hashes of all chunks have come,
// so that the counts cannot exceed what the upstream relay sent.
func (o *incomingBatch) begin() (err error) {
	if o.slots != nil {
		return nil
	}
	expect := counts(o.manifest, o.e.Task)
	o.tags = make([]store.Short, 0, total(expect))
	o.slots, err = o.maker.shuffle(recordHead+o.e.Layout.SlotSize(o.e.Hop+1), expect)
	return err
}

// take opens the slots of a chunk and adds them to the shuffle.
func (o *incomingBatch) take(lane int, slots [][]byte) error {
	if o.opener == nil { // no key: the relay refuses the batch after its transfer
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

// close deletes the shuffle with its slots.
func (o *incomingBatch) close() {
	if o.slots != nil {
		o.slots.Close()
	}
}

// write writes the dummies and the slots that are no replays in uniformly random order. It counts each lane's valid
// slots, and the replays.
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

// openedSlot is the result of opening a slot. Under one key a ciphertext always has the same tag, and no other
// ciphertext has it, so the tag identifies a replay.
type openedSlot struct {
	tag  store.Short
	next []byte // nil if the slot did not open
}

// openAll opens the slots of a lane on all cores, and hashes their tags with the epoch's key. If that key is erased
// meanwhile, it returns [keyfile.ErrErased], so that no slot counts as one that does not open.
func openAll(opener *onion.Opener, key *store.EpochKey, lane int, sealed [][]byte) ([]openedSlot, error) {
	all := make([]openedSlot, len(sealed))
	err := onAllCores(len(all), func(i int) (err error) {
		all[i], err = openOne(opener, key, lane, sealed[i])
		return err
	})
	return all, err
}

// onAllCores calls do for the numbers 0 to n-1 on all cores, and returns the first error; after it some numbers are
// skipped. Every 64 numbers it yields to request handlers.
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

// openOne opens one slot. If the slot does not open, next is nil and err is nil.
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

// Withholds reports whether an open batch would be destroyed if sealed now. Sealing it then frees disk space.
func Withholds(s *tasks.Hosted, b store.OpenBatch) bool {
	in := slices.Repeat([]uint64{min(b.Submissions*s.Slots.PerLane, s.MostSlots())}, int(s.Slots.Lanes))
	return onion.CheckCounts(s.Task, b.Submissions, in) != nil
}

// Seal permutes an open batch and signs it. If the batch has too few submissions or slots to be released, Seal destroys
// it: the manifest has the number of submissions, and no slot is released.
func (bm *Maker) Seal(ctx context.Context, b tasks.BatchRef) error {
	return bm.seal(ctx, b, bm.Store.Seal)
}

// SealWithheld seals a batch that [Withholds] says will be destroyed.
func (bm *Maker) SealWithheld(ctx context.Context, b tasks.BatchRef) error {
	return bm.seal(ctx, b, bm.Store.SealWithheld)
}

// seal makes and signs the batch; do is the store's Seal or SealWithheld.
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
		dummies, err := drawDummies(b.Epoch) // drawn in here, so that a retry draws anew
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

// collect adds the rows of an open batch to a shuffle, and counts them by lane. The caller closes the shuffle.
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
