package verifier

import (
	"bytes"
	"encoding/base64"
	"slices"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// epochs holds the state of each epoch by its number.
type epochs map[uint64]*epoch

// epoch is the state of one epoch: its records by batch number, and their sum.
type epoch struct {
	numbers map[uint64]*batchVersions
	closed  bool   // Complete: no batch can follow. Only total is left, with the findings of findBatchFaults.
	batches uint64 // Number of batches, from the signed end; 0 before the end was received.
	ended   bool   // The signed end was received.
	exposed bool   // Set when closed: whether clients' messages reached the verifier; see reached.
	total   *total // Sum of the batches with numbers below total.next; nil before the first.
}

// batchVersions holds what was received for one batch number: a version for each different manifest that the last relay
// signed, sorted by hash. An honest relay signs one.
type batchVersions struct{ versions []*signedVersion }

type signedVersion struct {
	hash   Version
	record *Record
	chain  []onion.Manifest // nil if only the manifest was received, without the batch
}

// at returns an epoch, and creates it if needed.
func (all epochs) at(of uint64) *epoch {
	e := all[of]
	if e == nil {
		e = &epoch{numbers: map[uint64]*batchVersions{}}
		all[of] = e
	}
	return e
}

// sorted returns the epochs' numbers in ascending order.
func (all epochs) sorted() []uint64 {
	var numbers []uint64
	for number := range all {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// has reports whether a whole batch with this number was received, not only its manifest.
func (all epochs) has(epoch, seq uint64) bool {
	e := all[epoch]
	if e == nil || e.numbers[seq] == nil {
		return false
	}
	return slices.ContainsFunc(e.numbers[seq].versions, func(one *signedVersion) bool {
		return one.record.Copies > 0
	})
}

// whole reports whether the signed ends of epochs 0 to count-1 were received, and a batch or manifest for each batch
// number that they announce.
func (all epochs) whole(count uint64) bool {
	for of := range count {
		e := all[of]
		if e == nil || !e.closed && !(e.ended && uint64(len(e.numbers)) >= e.batches) {
			return false
		}
	}
	return true
}

// reached returns the epochs whose clients' messages reached the verifier, ascending.
func (all epochs) reached() (out []uint64) {
	for _, number := range all.sorted() {
		if all[number].reached() {
			out = append(out, number)
		}
	}
	return out
}

// records returns all records, sorted by epoch, batch number and version.
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

// ended returns the number of batches of each epoch whose signed end announces any.
func (all epochs) ended() (out []ended) {
	for _, of := range all.sorted() {
		if n := all[of].batches; n > 0 {
			out = append(out, ended{of, n})
		}
	}
	return out
}

// findBatchFaults adds the findings about batch numbers of open epochs. The totals of closed epochs already have
// theirs.
func (all epochs) findBatchFaults(t *task.Task, f findings) {
	for _, of := range all.sorted() {
		if e := all[of]; !e.closed {
			e.findBatchFaults(of, t, f)
		}
	}
}

// put adds a record. Copies of the same version add up. If a batch number has several versions, none counts, so put
// keeps only their signed manifests.
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
		v.record, v.chain = r, chain // the stored record has only the manifest
		e.retract(r.Seq)
	} else {
		r.slots.free() // the stored record has the same slots
		v.record.Copies += r.Copies
		if bytes.Compare(r.Signed, v.record.Signed) < 0 { // a manifest can have many signatures; keep the smallest
			v.record.Signed = r.Signed
		}
	}
	if len(n.versions) > 1 {
		for _, v := range n.versions {
			v.record.strip()
		}
	}
}

// dedupID returns the deduplication run of the epoch's records; empty without a run or without records.
func (e *epoch) dedupID() []byte {
	for _, n := range e.numbers {
		return n.versions[0].record.Dedup.ID
	}
	return nil
}

// retract drops the total if it includes batch seq or later ones, because something new was received for seq.
func (e *epoch) retract(seq uint64) {
	if e.total != nil && seq < e.total.next {
		e.total = nil
	}
}

// seqs returns the received batch numbers from the given one on, in ascending order.
func (e *epoch) seqs(from uint64) (out []uint64) {
	for seq := range e.numbers {
		if seq >= from {
			out = append(out, seq)
		}
	}
	slices.Sort(out)
	return out
}

// counted returns the version of a batch that may count: the only version, if its whole batch was received. Else it
// returns nil.
func (n *batchVersions) counted() *signedVersion {
	if len(n.versions) == 1 && n.versions[0].chain != nil {
		return n.versions[0]
	}
	return nil
}

// reached reports whether clients' messages reached the verifier to be opened. This costs the clients privacy, whether
// the messages count or not.
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

// findBatchFaults adds the findings about an epoch's batch numbers: several versions, copies, gaps, destroyed batches,
// and batches after the last. A last batch that was destroyed because it was too small is no finding.
func (e *epoch) findBatchFaults(of uint64, t *task.Task, f findings) {
	seqs := e.seqs(0)
	highest := e.batches
	if len(seqs) > 0 {
		highest = max(highest, seqs[len(seqs)-1]+1)
	}
	last := false // Whether an earlier batch had to be the last. Each further batch adds noise.
	for _, seq := range seqs {
		e.numbers[seq].findings(BatchPosition(of, seq), seq+1 == highest, t, f)
		if last {
			f.add(finding.AfterLast, 1, BatchPosition(of, seq))
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
		f.add(finding.Gap, gaps, BatchPosition(of, first))
	}
}

func (n *batchVersions) findings(at Position, last bool, t *task.Task, f findings) {
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
	// If relays add noise, they also release a last batch that is not full.
	remainder := last && first.Submissions < t.Batch.Size && t.Claim.Assumption != task.NoneHonest
	if remainder && first.Destroyed() {
		return
	}
	f.add(finding.Destroyed, 1, at)
}

// evidence returns all manifests that the last relay signed for one batch number.
func (n *batchVersions) evidence(epoch, seq uint64) finding.Evidence {
	e := finding.Evidence{Epoch: epoch, Batch: seq}
	for _, v := range n.versions {
		e.Manifests = append(e.Manifests, base64.RawURLEncoding.EncodeToString(v.record.Signed))
	}
	return e
}
