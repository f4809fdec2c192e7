package verifier

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// recorder makes the record of a batch: it opens the batch's slots, or reads a stored record. It uses no other batches
// and no locks, so it can make several records at the same time.
type recorder struct {
	subject
	keys  *keyfile.HPKE // nil: open nothing
	space *scratchSpace // Stores the slots of records.
}

// record reads a batch to its end and returns its record. It does so even if the key is erased, because a fault of the
// batch takes precedence over the missing key.
func (rec *recorder) record(b *Incoming) (*Record, error) {
	last := b.Last()
	r, err := newRecord(rec.open, b.Signed, last.Epoch, last.Seq, 1)
	if err != nil {
		return nil, err
	}
	if last.Destroyed() || rec.checkCounts(last) != nil {
		return r, b.Check()
	}
	opener, err := rec.opener(last)
	if err != nil {
		return nil, cmp.Or(b.Check(), err)
	}
	f := rec.newBuilder(r)
	if err := openAll(opener, b.each, f.add); err != nil {
		r.slots.free()
		return nil, err
	}
	if err := f.finish(); err != nil {
		r.slots.free()
		return nil, err
	}
	return r, nil
}

// opener returns the opener of a batch's slots. The error is [keyfile.ErrErased] if the key is erased.
func (rec *recorder) opener(last *onion.Manifest) (*onion.Opener, error) {
	if rec.keys == nil {
		return nil, errors.New("couldn't open a batch: no keys")
	}
	key, err := rec.keys.Key(last.Epoch)
	if err != nil {
		return nil, fmt.Errorf("couldn't open batch %d of epoch %d: %w", last.Seq, last.Epoch, err)
	}
	return onion.NewOpener(rec.open.Task, rec.open.ID, rec.open.VerifierHop(), last.Epoch, key)
}

// checkCounts returns an error if, by the last relay's own counts, the batch is too small to release. The verifier does
// not open such a batch, because the guarantee does not hold for its clients.
func (s subject) checkCounts(last *onion.Manifest) error {
	out := make([]uint64, len(last.Lanes))
	for lane, n := range last.Lanes {
		out[lane] = n.Out
	}
	return onion.CheckCounts(s.open.Task, last.Submissions, out)
}

func (rec *recorder) slotSize() int { return slotHeader + int(rec.open.Slots.MessageBytes) }

func (rec *recorder) newSlots() *slotBuffer {
	return newSlotBuffer(rec.space, rec.slotSize(), int(rec.open.Slots.Lanes))
}

// maxHead is the maximum size of a record without its slots, in bytes. Its aggregate has a number for each bin or
// coordinate.
const maxHead = 1 << 30

// read reads a record. More bytes may follow it.
func (rec *recorder) read(in *codec.Reader) (*Record, error) {
	n, err := in.Array()
	if err == nil && n != 2 {
		err = fmt.Errorf("couldn't accept a record: an array of %d, want 2", n)
	}
	if err != nil {
		return nil, err
	}
	raw, err := in.Bytes(maxHead)
	if err != nil {
		return nil, err
	}
	r := new(Record)
	if err := codec.Unmarshal(raw, &r.recordHead); err != nil {
		return nil, err
	}
	if r.Label != recordLabel || r.Version != task.Version || string(r.TaskID) != string(rec.open.ID[:]) {
		return nil, errors.New("couldn't accept a record: it has another version or task")
	}
	if _, _, err := r.open(rec.open); err != nil {
		return nil, err
	}
	if err := r.Dedup.check(rec.mechanism, rec.open.Slots.Lanes); err != nil {
		return nil, err
	}
	aggregate := rec.mechanism.Aggregate()
	see := func(lane int, piece []byte) error { return addPiece(aggregate, lane, piece, rec.slotSize()) }
	r.slots, err = readSlotBuffer(in, rec.space, rec.slotSize(), int(rec.open.Slots.Lanes), see)
	if err == nil && !bytes.Equal(packCounters(aggregate), r.Aggregate) {
		err = errors.New("couldn't accept a record: its aggregate is not the sum of its messages")
	}
	if err != nil {
		r.slots.free()
		return nil, err
	}
	return r, nil
}

// addPiece adds the messages of a piece to an aggregate. size is a slot's size in bytes.
func addPiece(aggregate protocols.Aggregate, lane int, piece []byte, size int) error {
	for ; len(piece) > 0; piece = piece[size:] {
		switch kind := piece[tagHalf]; kind {
		case kindCover:
		case kindBody:
			if err := aggregate.Add(lane, piece[slotHeader:size]); err != nil {
				return fmt.Errorf("couldn't accept a record: %w", err)
			}
		default:
			return fmt.Errorf("couldn't accept a record: a slot of kind %d", kind)
		}
	}
	return nil
}

// recordBuilder adds the slots of a batch to its record as they are opened.
type recordBuilder struct {
	record    *Record
	aggregate protocols.Aggregate
	seen      *tags // Half tags of this batch's slots.
}

// newBuilder returns a builder that fills a record's slots.
func (rec *recorder) newBuilder(r *Record) *recordBuilder {
	r.slots = rec.newSlots()
	return &recordBuilder{r, rec.mechanism.Aggregate(), newTags()}
}

// add adds an opened slot, or counts its fault.
func (f *recordBuilder) add(s *slot) error {
	if fault := f.classify(s); fault != nil {
		*fault++
		return nil
	}
	kind := byte(kindBody)
	if s.message.Cover {
		kind = kindCover
	}
	return f.record.slots.add(s.lane, s.tag[:tagHalf], kind, s.message.Body)
}

// classify adds a valid slot's message to the batch's aggregate and returns nil. For any other slot it returns the
// fault counter to increment.
func (f *recordBuilder) classify(s *slot) *uint64 {
	faults := &f.record.Faults
	switch {
	case errors.Is(s.err, onion.ErrOpen):
		return &faults.Unreadable
	case s.err != nil:
		return &faults.Malformed
	}
	tag := tagOf(s.tag[:])
	if f.seen.has(tag) {
		return &faults.Repeated
	}
	if !s.message.Cover && f.aggregate.Add(s.lane, s.message.Body) != nil {
		return &faults.OutOfDomain
	}
	f.seen.add(tag)
	return nil
}

func (f *recordBuilder) finish() error {
	f.record.Aggregate = packCounters(f.aggregate)
	return f.record.slots.finish()
}
