package verifier

import (
	"errors"
	"fmt"

	"github.com/doona-dp/doona/protocols"
)

// A record keeps its slots because another batch of its epoch may repeat one of them. One machine finds repeats with a
// replay set. Several machines group tags by other means, such as a pipeline that groups by key, and learn which tags
// occur in more than one batch. [Verifier.Dedup] then replaces the slots of each record whose tags occur in no other
// batch by their sum, which is as small as a batch's aggregate. The few other slots stay. Each counts as on one
// machine: for the first batch that has it and is not withheld.

// DedupID identifies one deduplication run, which may span several files. It is random, and zero if there was no run.
type DedupID [32]byte

// dedupTotal is the sum of the slots that deduplication removed from a record.
type dedupTotal struct {
	ID               []byte   // Number of removed slots by lane; empty if the record was not deduplicated.
	Valid            []uint64 // Removed slots by lane; empty without a run.
	Messages, Covers uint64
	Aggregate        []byte // Sum of the removed messages; see packCounters.
}

// noDedup is the total of a record that was not deduplicated.
var noDedup = dedupTotal{ID: []byte{}, Valid: []uint64{}, Aggregate: []byte{}}

// errOtherDedup rejects a record that was deduplicated in another run than the other records of its epoch.
var errOtherDedup = errors.New("it was deduplicated in another run than the other records: a message in both would " +
	"count twice")

// Tags calls f for every slot that may count, with the epoch and the number of its batch, and the first half of its
// tag.
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

// Dedup removes from all records the slots whose tags occur in no other batch of their epoch. among identifies the run.
// shared reports whether a tag occurs in more than one batch of an epoch, in all files of the run. Afterwards an epoch
// accepts only records of the same run. A zero among is an error, and so is a record that was deduplicated before.
func (v *Verifier) Dedup(among DedupID, shared func(epoch, tag uint64) bool) error {
	if among == (DedupID{}) {
		return errors.New("couldn't deduplicate: the run's id is zero")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = cached{}
	for _, e := range v.epochs {
		if !e.closed {
			e.total = nil // it includes slots that Dedup removes
		}
	}
	for _, r := range v.epochs.records() {
		if len(r.Dedup.ID) > 0 {
			return fmt.Errorf("couldn't deduplicate batch %d of epoch %d: it was deduplicated before", r.Seq, r.Epoch)
		}
		r.Dedup.ID = among[:]
		if r.slots == nil {
			continue
		}
		if err := v.recorder.dedup(r, shared); err != nil {
			return fmt.Errorf("couldn't deduplicate batch %d of epoch %d: %w", r.Seq, r.Epoch, err)
		}
	}
	return nil
}

// dedup does what [Verifier.Dedup] does, for one record.
func (rec *recorder) dedup(r *Record, shared func(epoch, tag uint64) bool) error {
	removed, kept := rec.mechanism.Aggregate(), rec.mechanism.Aggregate()
	s := dedupTotal{ID: r.Dedup.ID, Valid: make([]uint64, rec.open.Slots.Lanes)}
	left := rec.newSlots()
	err := r.slots.each(func(lane int, slot []byte) error {
		kind, into := slot[tagHalf], removed
		if shared(r.Epoch, tagOf(slot)) {
			into = kept
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
	s.Aggregate = packCounters(removed)
	r.slots.free()
	r.slots, r.Dedup, r.Aggregate = left, s, packCounters(kept)
	return nil
}

func (s *dedupTotal) count(lane int, kind byte) {
	s.Valid[lane]++
	if kind == kindCover {
		s.Covers++
	} else {
		s.Messages++
	}
}

// check returns an error if s cannot be the sum of slots of this task.
func (s *dedupTotal) check(m protocols.Mechanism, lanes uint64) error {
	if n := len(s.ID); n != 0 && n != len(DedupID{}) {
		return fmt.Errorf("couldn't accept a record: a deduplication id of %d bytes, want %d", n, len(DedupID{}))
	}
	if n := uint64(len(s.Valid)); n != 0 && n != lanes {
		return fmt.Errorf("couldn't accept a record: deduplicated slots of %d lanes, want %d", n, lanes)
	}
	if len(s.ID) == 0 && len(s.Valid) > 0 {
		return errors.New("couldn't accept a record: deduplicated slots without a deduplication id")
	}
	all := uint64(0)
	for _, n := range append([]uint64{s.Messages, s.Covers}, s.Valid...) {
		if n > maxSeq {
			return fmt.Errorf("couldn't accept a record: %d deduplicated slots, want at most 2^53", n)
		}
	}
	for _, n := range s.Valid {
		all += n
	}
	if all != s.Messages+s.Covers {
		return fmt.Errorf("couldn't accept a record: %d deduplicated slots, but %d messages and covers", all,
			s.Messages+s.Covers)
	}
	return unpackCounters(m.Aggregate(), s.Aggregate)
}
