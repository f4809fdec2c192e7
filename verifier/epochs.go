package verifier

import (
	"bytes"
	"encoding/base64"
	"slices"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// epochs is what is known of each epoch, by its number.
type epochs map[uint64]*epoch

// epoch is what is known of one epoch: records, in whatever order they came, and what they add up to.
type epoch struct {
	numbers map[uint64]*batchVersions
	closed  bool   // There is no further batch; what is left is the total, with the findings of findBatchFaults.
	batches uint64 // How many its signed end tells of; 0 before.
	ended   bool   // Its signed end is here.
	exposed bool   // Whether messages of clients came here, once it is closed: see reached.
	total   *total // Of the numbers below its next; nil: none yet.
}

// batchVersions is what came of one number: a version for each manifest that the last relay signed for it, by hash.
type batchVersions struct{ versions []*signedVersion }

type signedVersion struct {
	hash   Version
	record *Record
	chain  []onion.Manifest // nil where only the manifest is known.
}

// at returns an epoch, which is a new one where nothing is known of it.
func (all epochs) at(of uint64) *epoch {
	e := all[of]
	if e == nil {
		e = &epoch{numbers: map[uint64]*batchVersions{}}
		all[of] = e
	}
	return e
}

// sorted returns the numbers of the epochs, ascending.
func (all epochs) sorted() []uint64 {
	var numbers []uint64
	for number := range all {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// has says whether a batch of a number is there as a whole.
func (all epochs) has(epoch, seq uint64) bool {
	e := all[epoch]
	if e == nil || e.numbers[seq] == nil {
		return false
	}
	return slices.ContainsFunc(e.numbers[seq].versions, func(one *signedVersion) bool {
		return one.record.Copies > 0
	})
}

// whole says whether the signed ends of so many epochs are here, with something of every batch that they tell of.
func (all epochs) whole(count uint64) bool {
	for of := range count {
		e := all[of]
		if e == nil || !e.closed && !(e.ended && uint64(len(e.numbers)) >= e.batches) {
			return false
		}
	}
	return true
}

// reached returns the epochs of which clients' messages came here, ascending.
func (all epochs) reached() (out []uint64) {
	for _, number := range all.sorted() {
		if all[number].reached() {
			out = append(out, number)
		}
	}
	return out
}

// records returns all records by epoch, number and version.
func (all epochs) records() (out []*Record) {
	for _, of := range all.sorted() {
		e := all[of]
		for _, seq := range e.seqs(0) {
			for _, one := range e.numbers[seq].versions {
				out = append(out, one.record)
			}
		}
	}
	return out
}

// ended returns how many batches epochs have by their signed ends.
func (all epochs) ended() (out []ended) {
	for _, of := range all.sorted() {
		if n := all[of].batches; n > 0 {
			out = append(out, ended{of, n})
		}
	}
	return out
}

// findBatchFaults adds what shows beside all numbers of the epochs that are not complete: of the others it is in the total.
func (all epochs) findBatchFaults(t *task.Task, f findings) {
	for _, of := range all.sorted() {
		if e := all[of]; !e.closed {
			e.findBatchFaults(of, t, f)
		}
	}
}

// put adds a record. Of two of one version the copies add up; of several versions only what was signed is
// kept, as none counts.
func (e *epoch) put(hash Version, r *Record, chain []onion.Manifest) {
	n := e.numbers[r.Seq]
	if n == nil {
		n = &batchVersions{}
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

// dedupID returns that of the epoch's records: none where it has none.
func (e *epoch) dedupID() []byte {
	for _, n := range e.numbers {
		return n.versions[0].record.Dedup.ID
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
func (n *batchVersions) counted() *signedVersion {
	if len(n.versions) == 1 && n.versions[0].chain != nil {
		return n.versions[0]
	}
	return nil
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

// findBatchFaults adds what shows beside all numbers of an epoch: several versions of one, copies, gaps, and
// batches that were destroyed. What is left at the end of an epoch is too small for a batch, and no finding.
func (e *epoch) findBatchFaults(of uint64, t *task.Task, f findings) {
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

func (n *batchVersions) findings(at Place, last bool, t *task.Task, f findings) {
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

// evidence returns the manifests that were signed for one number.
func (n *batchVersions) evidence(epoch, seq uint64) finding.Evidence {
	e := finding.Evidence{Epoch: epoch, Batch: seq}
	for _, v := range n.versions {
		e.Manifests = append(e.Manifests, base64.RawURLEncoding.EncodeToString(v.record.Signed))
	}
	return e
}
