package verifier

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// epoch is what is known of one epoch: records, in whatever order they came, and what they add up to.
type epoch struct {
	numbers map[uint64]*number
	closed  bool   // There is no further batch; what is left is the total, with the findings of findPlaces.
	batches uint64 // How many its signed end tells of; 0 before.
	ended   bool   // Its signed end is here.
	exposed bool   // Whether messages of clients came here, once it is closed: see reached.
	total   *total // Of the numbers below its next; nil: none yet.
}

// number is what came of one number: a version for each manifest that the last relay signed for it, by hash.
type number struct{ versions []*signedVersion }

type signedVersion struct {
	hash   Version
	record *Record
	chain  []onion.Manifest // nil where only the manifest is known.
}

// total is what the batches of an epoch add up to, in the order of their numbers.
type total struct {
	aggregate protocols.Aggregate
	counts    Counts
	hops      []HopCounts // By relay.
	missing   []uint64    // Slots of released batches that were lost, by relay; last at the verifier.
	findings  findings
	tags      *tags  // Of what counts: the replay set.
	next      uint64 // The least number that is not in it.
}

// put adds a record. Of two of one version the copies add up; of several versions only what was signed is
// kept, as none counts.
func (e *epoch) put(hash Version, r *Record, chain []onion.Manifest) {
	n := e.numbers[r.Seq]
	if n == nil {
		n = &number{}
		e.numbers[r.Seq] = n
	}
	at, known := slices.BinarySearchFunc(n.versions, hash, func(v *signedVersion, h Version) int {
		return bytes.Compare(v.hash[:], h[:])
	})
	if !known {
		n.versions = slices.Insert(n.versions, at, &signedVersion{hash, r, chain})
		e.retract(r.Seq)
	} else if v := n.versions[at]; v.record.Copies == 0 && r.Copies > 0 {
		v.record, v.chain = r, chain // the other has no slots
		e.retract(r.Seq)
	} else {
		r.slots.free() // they are there
		v.record.Copies += r.Copies
		if bytes.Compare(r.Signed, v.record.Signed) < 0 { // a relay may sign one manifest in many ways
			v.record.Signed = r.Signed
		}
	}
	if len(n.versions) > 1 {
		for _, v := range n.versions {
			v.record.strip()
		}
	}
}

// settlement returns that of the epoch's records: none where it has none.
func (e *epoch) settlement() []byte {
	for _, n := range e.numbers {
		return n.versions[0].record.Settled.Among
	}
	return nil
}

// retract forgets the total if it goes beyond a number of which something new is known.
func (e *epoch) retract(seq uint64) {
	if e.total != nil && seq < e.total.next {
		e.total = nil
	}
}

// seqs returns the numbers from one on that something is known of, ascending.
func (e *epoch) seqs(from uint64) (out []uint64) {
	for seq := range e.numbers {
		if seq >= from {
			out = append(out, seq)
		}
	}
	slices.Sort(out)
	return out
}

// counted returns the version of a number that may count: the only one, if it is there as a whole.
func (n *number) counted() *signedVersion {
	if len(n.versions) == 1 && n.versions[0].chain != nil {
		return n.versions[0]
	}
	return nil
}

// addUp brings the total of an epoch up to date.
func (v *Verifier) addUp(e *epoch) error {
	if e.closed {
		return nil
	}
	if e.total == nil {
		e.total = &total{aggregate: v.mechanism.Aggregate(), hops: newHops(v.open.VerifierHop()),
			missing: make([]uint64, v.open.VerifierHop()+1), findings: findings{}, tags: newTags()}
	}
	for _, seq := range e.seqs(e.total.next) {
		if one := e.numbers[seq].counted(); one != nil {
			if err := v.count(e.total, one); err != nil {
				e.total = nil // half a batch may be in it
				return err
			}
		}
		e.total.next = seq + 1
	}
	return nil
}

// count adds a batch to the total of those with lower numbers, unless too few of its slots are valid.
func (v *Verifier) count(t *total, one *signedVersion) error {
	r, at := one.record, BatchPlace(one.record.Epoch, one.record.Seq)
	find := func(name finding.Name, n uint64) {
		if n > 0 {
			t.findings.add(name, n, at)
		}
	}
	c := countChain(one.chain, t.hops)
	find(finding.Dropped, c.Rejected)
	last := one.chain[len(one.chain)-1]
	if last.Destroyed() {
		t.counts.add(c)
		return nil
	}
	if err := v.suffices(&last); err != nil {
		t.findings.add(finding.TooFew, 1, at.Because(err))
		c.Withheld, c.OverExposed = c.Sent-c.Rejected, last.Submissions
		t.counts.add(c)
		return nil
	}
	batch, err := v.unite(t, r)
	if err != nil {
		return err
	}
	find(finding.Unreadable, r.Faults.Unreadable)
	find(finding.Malformed, r.Faults.Malformed)
	find(finding.OutOfDomain, r.Faults.OutOfDomain)
	find(finding.Repeated, r.Faults.Repeated+batch.repeated)
	c.Rejected += r.Faults.Unreadable + r.Faults.Malformed + r.Faults.OutOfDomain + r.Faults.Repeated + batch.repeated
	c.Covers = batch.covers
	if name, err := v.withhold(batch, last.Submissions); err != nil {
		t.findings.add(name, 1, at.Because(err))
		c.Withheld += batch.messages
		if name == finding.TooFew {
			c.OverExposed = last.Submissions
		} else {
			c.Incomplete = 1
		}
		t.counts.add(c)
		return nil
	}
	batch.aggregate.AddUsers(last.Submissions)
	dilute(batch.aggregate, one.chain)
	err = r.slots.each(func(_ int, slot []byte) error {
		t.tags.add(tagOf(slot))
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.aggregate.Merge(batch.aggregate); err != nil {
		return err
	}
	c.Batches, c.Users, c.Verified, c.Lost = 1, last.Submissions, batch.messages, c.Rejected
	if onion.Crowded(v.open.Task, one.chain, batch.valid) {
		c.Crowded = 1
	}
	t.lose(one.chain, c.Lost)
	t.counts.add(c)
	return nil
}

// dilute says how often relays drew the dummies of a batch, and how many they say they added.
func dilute(a protocols.Aggregate, chain []onion.Manifest) {
	diluted, ok := a.(protocols.Diluted)
	if !ok {
		return
	}
	added, draws := uint64(0), uint64(0)
	for _, m := range chain {
		if m.Destroyed() {
			continue
		}
		draws++
		for _, lane := range m.Lanes {
			added += lane.Added
		}
	}
	diluted.AddDummies(draws, added)
}

// lose adds the slots that a released batch lost, by hop: those that each relay dropped, and of all lost
// ones the rest, at the verifier.
func (t *total) lose(chain []onion.Manifest, lost uint64) {
	for hop, m := range chain {
		for _, lane := range m.Lanes {
			t.missing[hop] += lane.Dropped
			lost -= lane.Dropped
		}
	}
	t.missing[len(chain)] += lost
}

// reached says whether messages of clients came here to be opened, which their privacy pays for, whether
// they count or not.
func (e *epoch) reached() bool {
	for _, n := range e.numbers {
		for _, one := range n.versions {
			if one.chain != nil && !one.chain[len(one.chain)-1].Destroyed() {
				return true
			}
		}
	}
	return e.exposed
}

// withhold names why a batch does not count.
func (v *Verifier) withhold(b *united, submissions uint64) (finding.Name, error) {
	if err := onion.CheckCounts(v.open.Task, submissions, b.valid); err != nil {
		return finding.TooFew, err
	}
	return finding.Incomplete, protocols.CheckComplete(b.aggregate, submissions)
}

// united is what is left of a batch beside those with lower numbers.
type united struct {
	aggregate                  protocols.Aggregate
	valid                      []uint64 // Slots by lane.
	messages, covers, repeated uint64
}

// unite takes out of a record what counts already. Mostly that is nothing, and its aggregate is as it was.
func (v *Verifier) unite(t *total, r *Record) (*united, error) {
	b := &united{valid: make([]uint64, v.open.Slots.Lanes), messages: r.Settled.Messages, covers: r.Settled.Covers}
	copy(b.valid, r.Settled.Valid)
	err := r.slots.each(func(lane int, slot []byte) error {
		switch {
		case t.tags.has(tagOf(slot)):
			b.repeated++
			return nil
		case slot[tagHalf] == kindCover:
			b.covers++
		default:
			b.messages++
		}
		b.valid[lane]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if b.repeated == 0 {
		b.aggregate, err = v.aggregates(r)
		return b, err
	}
	b.aggregate = v.mechanism.Aggregate()
	if err := unpackCounters(b.aggregate, r.Settled.Aggregate); err != nil {
		return nil, err
	}
	return b, r.slots.each(func(lane int, slot []byte) error {
		if slot[tagHalf] == kindCover || t.tags.has(tagOf(slot)) {
			return nil
		}
		return b.aggregate.Add(lane, slot[slotHeader:])
	})
}

// slotSize is the size of a slot in a record.
func (v *Verifier) slotSize() int { return slotHeader + int(v.open.Slots.MessageBytes) }

// findPlaces adds what shows beside all numbers of an epoch: several versions of one, copies, gaps, and
// batches that were destroyed. What is left at the end of an epoch is too small for a batch, and no finding.
func (e *epoch) findPlaces(of uint64, t *task.Task, f findings) {
	seqs := e.seqs(0)
	highest := e.batches
	if len(seqs) > 0 {
		highest = max(highest, seqs[len(seqs)-1]+1)
	}
	last := false // Whether there was a batch after which relays take none: its noise would add to every further one.
	for _, seq := range seqs {
		e.numbers[seq].findings(BatchPlace(of, seq), seq+1 == highest, t, f)
		if last {
			f.add(finding.AfterLast, 1, BatchPlace(of, seq))
		}
		one := e.numbers[seq].counted()
		last = last || t.Noise != nil && one != nil && one.chain[0].Last(t)
	}
	if gaps := highest - uint64(len(seqs)); gaps > 0 {
		first := uint64(0)
		for _, seq := range seqs {
			if seq != first {
				break
			}
			first++
		}
		f.add(finding.Gap, gaps, BatchPlace(of, first))
	}
}

func (n *number) findings(at Place, last bool, t *task.Task, f findings) {
	copies := uint64(0)
	for _, v := range n.versions {
		if v.record.Copies > 1 {
			copies += v.record.Copies - 1
		}
	}
	if copies > 0 {
		f.add(finding.Duplicate, copies, at)
	}
	if len(n.versions) > 1 {
		one := f.add(finding.Equivocation, 1, at)
		one.evidence = append(one.evidence, n.evidence(at.Epoch, at.Seq))
	}
	one := n.counted()
	if one == nil || !one.chain[len(one.chain)-1].Destroyed() {
		return
	}
	first := one.chain[0]
	// Under relays' noise a remainder is released, too.
	remainder := last && first.Submissions < t.Batch.Size && t.Claim.Assumption != task.NoneHonest
	if remainder && first.Destroyed() {
		return
	}
	f.add(finding.Destroyed, 1, at)
}

// countChain counts what the relays did to a batch, from their manifests, and adds it to hops.
func countChain(chain []onion.Manifest, hops []HopCounts) (c Counts) {
	for hop, m := range chain {
		var h HopCounts
		for _, lane := range m.Lanes {
			if m.Destroyed() {
				h.add(HopCounts{In: lane.In, Destroyed: lane.In})
			} else {
				h.add(HopCounts{In: lane.In, Out: lane.Out, Dropped: lane.Dropped})
			}
		}
		if hop == 0 {
			c.Sent += h.In
		}
		c.Withheld += h.Destroyed
		c.Rejected += h.Dropped
		hops[hop].add(h)
	}
	return c
}

func newHops(relays int) []HopCounts {
	hops := make([]HopCounts, relays)
	for i := range hops {
		hops[i].Relay = i + 1
	}
	return hops
}

// End takes the number of batches that an epoch's signed end tells of.
func (v *Verifier) End(of, batches uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of >= v.open.Epochs.Count {
		return fmt.Errorf("couldn't end epoch %d: the task has %d", of, v.open.Epochs.Count)
	}
	e := v.epoch(of)
	e.batches, e.ended = max(e.batches, batches), true
	return nil
}

// Whole says whether the signed ends of all epochs are here, with something of every batch that they tell of: nothing
// more is to come.
func (v *Verifier) Whole() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for of := range v.open.Epochs.Count {
		e := v.epochs[of]
		if e == nil || !e.closed && !(e.ended && uint64(len(e.numbers)) >= e.batches) {
			return false
		}
	}
	return true
}

// epoch returns an epoch that something is to be changed of. v.mu is held.
func (v *Verifier) epoch(of uint64) *epoch {
	v.made = nil
	e := v.epochs[of]
	if e == nil {
		e = &epoch{numbers: map[uint64]*number{}}
		v.epochs[of] = e
	}
	return e
}
