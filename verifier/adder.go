package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// adder adds up the batches of an epoch that count. It adds them in the order of their numbers, in whatever order they
// arrive.
type adder struct{ subject }

// total is the sum of an epoch's batches up to a batch number.
type total struct {
	aggregate protocols.Aggregate
	counts    Counts
	hops      []HopCounts // Slots by fate, per relay.
	missing   []uint64    // Lost slots of released batches, per hop; the verifier is last.
	findings  findings
	tags      *tags  // Replay set: the tags of the slots that count.
	next      uint64 // The sum includes all batches with lower numbers.
}

// addUp adds the batches of an epoch that its total does not include yet.
func (a *adder) addUp(e *epoch) error {
	if e.closed {
		return nil
	}
	if e.total == nil {
		e.total = &total{aggregate: a.mechanism.Aggregate(), hops: newHops(a.open.VerifierHop()),
			missing: make([]uint64, a.open.VerifierHop()+1), findings: findings{}, tags: newTags()}
	}
	for _, seq := range e.seqs(e.total.next) {
		if one := e.numbers[seq].counted(); one != nil {
			if err := a.count(e.total, one); err != nil {
				e.total = nil // the total may contain a part of the batch
				return err
			}
		}
		e.total.next = seq + 1
	}
	return nil
}

// count adds a batch to the total of all batches with lower numbers. It withholds a batch with too few valid slots.
func (a *adder) count(t *total, one *signedVersion) error {
	r, at := one.record, BatchPosition(one.record.Epoch, one.record.Seq)
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
	if err := a.checkCounts(&last); err != nil {
		t.findings.add(finding.TooFew, 1, at.Because(err))
		c.Withheld, c.OverExposed = c.Sent-c.Rejected, last.Submissions
		t.counts.add(c)
		return nil
	}
	batch, err := a.dropRepeats(t, r)
	if err != nil {
		return err
	}
	find(finding.Unreadable, r.Faults.Unreadable)
	find(finding.Malformed, r.Faults.Malformed)
	find(finding.OutOfDomain, r.Faults.OutOfDomain)
	find(finding.Repeated, r.Faults.Repeated+batch.repeated)
	c.Rejected += r.Faults.Unreadable + r.Faults.Malformed + r.Faults.OutOfDomain + r.Faults.Repeated + batch.repeated
	c.Covers = batch.covers
	if name, err := a.withhold(batch, last.Submissions); err != nil {
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
	users := a.reporting(last.Submissions, batch.covers)
	batch.aggregate.AddUsers(users)
	if dummies := protocols.CapabilitiesOf(a.mechanism).Dummies; dummies != nil {
		addDummies(dummies(batch.aggregate), one.chain)
	}
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
	c.Batches, c.Users, c.Verified, c.Lost = 1, users, batch.messages, c.Rejected
	if onion.HasMinClients(a.open.Task, one.chain, batch.valid) {
		c.HonestBatches = 1
	}
	t.addLosses(one.chain, c.Lost)
	t.counts.add(c)
	return nil
}

// reporting returns how many clients of a batch reported. Where relays add all noise, a client sends one message. A
// cover in its place is of a submission of a set that had nothing for this table (docs/SPEC.md, section 15).
func (a *adder) reporting(submissions, covers uint64) uint64 {
	if !maySkip(a.open.Task) {
		return submissions
	}
	return submissions - min(covers, submissions)
}

// maySkip reports whether a client that sends a cover makes no report. Of other tasks, a cover may be a value.
func maySkip(t *task.Task) bool { return t.Noise != nil && t.Noise.Kind == task.NoiseCells }

// addDummies tells an aggregate how often relays drew dummies for a batch, and how many dummies the relays say that
// they added.
func addDummies(dummies protocols.DummyAggregate, chain []onion.Manifest) {
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
	dummies.AddDummies(draws, added)
}

// addLosses adds the lost slots of a released batch by hop. Each relay lost the slots that its manifest lists as
// dropped; the verifier lost the rest.
func (t *total) addLosses(chain []onion.Manifest, lost uint64) {
	for hop, m := range chain {
		for _, lane := range m.Lanes {
			t.missing[hop] += lane.Dropped
			lost -= lane.Dropped
		}
	}
	t.missing[len(chain)] += lost
}

// withhold returns why a batch may not count. The error is nil if it counts.
func (a *adder) withhold(b *batchTotal, submissions uint64) (finding.Name, error) {
	if err := onion.CheckCounts(a.open.Task, submissions, b.valid); err != nil {
		return finding.TooFew, err
	}
	if check := protocols.CapabilitiesOf(a.mechanism).CheckComplete; check != nil {
		return finding.Incomplete, check(b.aggregate, submissions)
	}
	return "", nil
}

// batchTotal is the sum of a batch, without the slots that repeat a slot of a batch with a lower number.
type batchTotal struct {
	aggregate                  protocols.Aggregate
	valid                      []uint64 // Number of valid slots by lane.
	messages, covers, repeated uint64
}

// dropRepeats adds up a record without the slots whose tags already count. A record usually has no repeats; then its
// stored aggregate is used.
func (a *adder) dropRepeats(t *total, r *Record) (*batchTotal, error) {
	b := &batchTotal{valid: make([]uint64, a.open.Slots.Lanes), messages: r.Dedup.Messages, covers: r.Dedup.Covers}
	copy(b.valid, r.Dedup.Valid)
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
		b.aggregate, err = r.aggregates(a.mechanism)
		return b, err
	}
	b.aggregate = a.mechanism.Aggregate()
	if err := unpackCounters(b.aggregate, r.Dedup.Aggregate); err != nil {
		return nil, err
	}
	return b, r.slots.each(func(lane int, slot []byte) error {
		if slot[tagHalf] == kindCover || t.tags.has(tagOf(slot)) {
			return nil
		}
		return b.aggregate.Add(lane, slot[slotHeader:])
	})
}
