package verifier

import (
	"errors"
	"fmt"

	"github.com/doona-dp/doona/protocols"
)

// A record keeps its slots because another batch of its epoch may have one of them again. One machine finds that out
// in a replay set. Several bring tags together by other means, a pipeline's grouping by key for instance, and learn
// which ones more than one batch has. [Verifier.Dedup] then takes all other slots out of the records: what they add
// up to is left, which is as small as a batch's aggregate. The few that are shared stay, and count as in one machine:
// for the batch that comes first of those that are not withheld.

// DedupID names one settling of records: random bytes, drawn for all files of a run. Zero is none.
type DedupID [32]byte

// dedupTotal is what slots add up to that were taken out of a record.
type dedupTotal struct {
	ID               []byte   // The settlement; empty where none were.
	Valid            []uint64 // How many, by lane; none of no lane.
	Messages, Covers uint64
	Aggregate        []byte // Of the messages, see packCounters.
}

// noDedup is what was taken out of a record that was not settled.
var noDedup = dedupTotal{ID: []byte{}, Valid: []uint64{}, Aggregate: []byte{}}

// errOtherDedup is returned where a verifier's records were settled among other files than one that is to be added.
var errOtherDedup = errors.New("it was not settled together with the others: a message may be in both, and would " +
	"count twice")

// Tags calls f for every slot that may count, with the epoch and number of its batch and the first half of its tag.
func (v *Verifier) Tags(f func(epoch, seq, tag uint64) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.epochs.records() {
		err := r.slots.each(func(_ int, slot []byte) error { return f(r.Epoch, r.Seq, tagOf(slot)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Settle takes out of all records the slots whose tags no other batch of their epoch has, among all files that a
// settlement names: shared tells which ones another has. After that only what was settled among the same files can be
// added to an epoch.
func (v *Verifier) Dedup(among DedupID, shared func(epoch, tag uint64) bool) error {
	if among == (DedupID{}) {
		return errors.New("couldn't settle among no files")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = nil
	for _, e := range v.epochs {
		if !e.closed {
			e.total = nil // it has looked at slots that go
		}
	}
	for _, r := range v.epochs.records() {
		if len(r.Dedup.ID) > 0 {
			return fmt.Errorf("couldn't settle batch %d of epoch %d: it is", r.Seq, r.Epoch)
		}
		r.Dedup.ID = among[:]
		if r.slots == nil {
			continue
		}
		if err := v.recorder.dedup(r, shared); err != nil {
			return fmt.Errorf("couldn't settle batch %d of epoch %d: %w", r.Seq, r.Epoch, err)
		}
	}
	return nil
}

// dedup is [Verifier.Dedup] for a record.
func (rec *recorder) dedup(r *Record, shared func(epoch, tag uint64) bool) error {
	alone, rest := rec.mechanism.Aggregate(), rec.mechanism.Aggregate()
	s := dedupTotal{ID: r.Dedup.ID, Valid: make([]uint64, rec.open.Slots.Lanes)}
	left := rec.newSlots()
	err := r.slots.each(func(lane int, slot []byte) error {
		kind, into := slot[tagHalf], alone
		if shared(r.Epoch, tagOf(slot)) {
			into = rest
			if err := left.add(lane, slot[:tagHalf], kind, slot[slotHeader:]); err != nil {
				return err
			}
		} else {
			s.count(lane, kind)
		}
		if kind == kindCover {
			return nil
		}
		return into.Add(lane, slot[slotHeader:])
	})
	if err = errors.Join(err, left.finish()); err != nil {
		left.free()
		return err
	}
	s.Aggregate = packCounters(alone)
	r.slots.free()
	r.slots, r.Dedup, r.Aggregate = left, s, packCounters(rest)
	return nil
}

// count counts a slot.
func (s *dedupTotal) count(lane int, kind byte) {
	s.Valid[lane]++
	if kind == kindCover {
		s.Covers++
	} else {
		s.Messages++
	}
}

// check is an error unless it can be what slots of this task add up to.
func (s *dedupTotal) check(m protocols.Mechanism, lanes uint64) error {
	if n := len(s.ID); n != 0 && n != len(DedupID{}) {
		return fmt.Errorf("couldn't accept a record: a settlement of %d bytes, want %d", n, len(DedupID{}))
	}
	if n := uint64(len(s.Valid)); n != 0 && n != lanes {
		return fmt.Errorf("couldn't accept a record: settled slots of %d lanes, want %d", n, lanes)
	}
	if len(s.ID) == 0 && len(s.Valid) > 0 {
		return errors.New("couldn't accept a record: settled slots, and no settlement")
	}
	all := uint64(0)
	for _, n := range append([]uint64{s.Messages, s.Covers}, s.Valid...) {
		if n > maxSeq {
			return fmt.Errorf("couldn't accept a record: %d settled slots", n)
		}
	}
	for _, n := range s.Valid {
		all += n
	}
	if all != s.Messages+s.Covers {
		return fmt.Errorf("couldn't accept a record: %d settled slots, and %d messages and covers", all,
			s.Messages+s.Covers)
	}
	return unpackCounters(m.Aggregate(), s.Aggregate)
}
