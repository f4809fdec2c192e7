// Package verifier is the analyzer: it checks the batches of a task against their chain of
// manifests, opens them, and turns the messages into estimates with error bars, the guarantee
// they were collected under, and findings about what did not add up.
//
// Its findings protect accuracy only. Privacy does not rest on them: towards the clients the
// verifier is the adversary, and every relay has enforced the conditions before it.
package verifier

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Verifier adds up the batches of one task. What it reports does not depend on the order in which they
// come. It is safe for concurrent use.
//
// It holds what is known, under one lock. A [recorder] makes records of batches, without it; an [adder] adds up what
// counts of them; [charger] charges epochs before a report shows them.
type Verifier struct {
	subject
	recorder *recorder
	adder    *adder
	labels   []string // Of the entries.

	mu       sync.Mutex // guards the rest
	epochs   epochs
	faults   findings        // Of what is no record.
	progress func() Progress // Of the collector; nil where there is none.
	override bool            // Show what is unusable.
	cached   *Report         // Of all that is known; nil where something has changed since the last one.
	costs    *costs
	charger  *charger // Nil: nothing is charged.
}

// subject is the task that is analyzed.
type subject struct {
	open      *taskfile.Open
	mechanism protocols.Mechanism // nil: nothing is added up.
}

// New returns a verifier for a task whose claim it re-derives. The private keys must be those of
// the key list that the task names for the verifier; without keys it takes records, and opens nothing.
func New(open *taskfile.Open, keys *keyfile.HPKE) (*Verifier, error) {
	if keys != nil {
		if err := keys.Check(open.Task, open.KeyLists[open.VerifierHop()]); err != nil {
			return nil, err
		}
	}
	if err := open.Input.CheckEntries(); err != nil {
		return nil, err
	}
	m, err := registry.Open(open.Task)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	return newVerifier(subject{open, m}, keys), nil
}

// NewChecker returns a verifier that has findings and no report: it opens nothing.
func NewChecker(open *taskfile.Open) *Verifier { return newVerifier(subject{open: open}, nil) }

func newVerifier(of subject, keys *keyfile.HPKE) *Verifier {
	v := &Verifier{subject: of, recorder: &recorder{subject: of, keys: keys}, adder: &adder{of},
		epochs: epochs{}, faults: findings{}, costs: newCosts(of)}
	if of.mechanism != nil {
		v.labels = Labels(of.open.Task)
	}
	v.Scratch("")
	return v
}

// Fresh returns a verifier of the same task, with the same keys, that knows nothing yet.
func (v *Verifier) Fresh() *Verifier { return newVerifier(v.subject, v.recorder.keys) }

// Task returns the task that is analyzed.
func (v *Verifier) Task() *taskfile.Open { return v.open }

// scratchMemory is how many bytes of slots a verifier holds in memory.
var scratchMemory = 16 << 20

// Scratch has slots that memory has no room for go to a file without a name in a folder, encrypted under a key that is
// only in memory: until their epoch has ended, or as long as the verifier lives. Without it, or with "", that is the
// system's folder for temporary files. It is called before anything is added.
func (v *Verifier) Scratch(folder string) {
	v.recorder.space = newScratch(folder, max(pieceBytes, v.recorder.slotSize()), scratchMemory)
}

// Close gives back what records' slots take of memory and of the disk. The verifier is of no use any more.
func (v *Verifier) Close() error { return v.recorder.space.Close() }

// ShowUnusable overrides the rule that an unusable report has no estimate. The report says that it was
// overridden.
func (v *Verifier) ShowUnusable() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.override, v.cached = true, nil
}

// Add checks, opens and adds a batch. A batch that fails its checks, or was added before, is an error and
// changes nothing. A destroyed batch is counted and adds nothing to the estimate.
func (v *Verifier) Add(batch *onion.Batch) error {
	b, err := inMemory(v.open, batch)
	if err != nil {
		return err
	}
	last := b.Last()
	if v.IsClosed(last.Epoch) {
		return fmt.Errorf("couldn't add batch %d of epoch %d: the epoch is complete", last.Seq, last.Epoch)
	}
	if v.has(last.Epoch, last.Seq) {
		return fmt.Errorf("couldn't add batch %d of epoch %d: added before", last.Seq, last.Epoch)
	}
	r, err := v.recorder.record(b)
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// AddRecord adds a record, which is the verifier's from then on. It is an error where the epoch is complete, or
// another of its records was settled among other files.
func (v *Verifier) AddRecord(r *Record) error {
	hash, chain, err := r.open(v.open)
	if err != nil {
		r.slots.free()
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.mutableEpoch(r.Epoch)
	if e.closed {
		r.slots.free()
		return fmt.Errorf("couldn't add batch %d of epoch %d: the epoch is complete", r.Seq, r.Epoch)
	}
	if len(e.numbers) > 0 && !bytes.Equal(e.dedupID(), r.Dedup.ID) {
		r.slots.free()
		return fmt.Errorf("couldn't add batch %d of epoch %d: %w", r.Seq, r.Epoch, errOtherDedup)
	}
	e.put(hash, r, chain)
	return nil
}

// RecordManifest adds what the last relay signed for a number, without the batch's slots.
func (v *Verifier) RecordManifest(signed *onion.SignedManifest, epoch, seq, copies uint64) error {
	r, err := newRecord(v.open, signed, epoch, seq, copies)
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// End takes the number of batches that an epoch's signed end tells of.
func (v *Verifier) End(of, batches uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of >= v.open.Epochs.Count {
		return fmt.Errorf("couldn't end epoch %d: the task has %d", of, v.open.Epochs.Count)
	}
	e := v.mutableEpoch(of)
	e.batches, e.ended = max(e.batches, batches), true
	return nil
}

// Complete says that there is no further batch of an epoch, and lets its records go, replay set and all.
// What is kept of all epochs together then does not grow with their messages.
func (v *Verifier) Complete(of uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.mutableEpoch(of)
	if e.closed {
		return nil
	}
	if err := v.adder.addUp(e); err != nil {
		return err
	}
	e.findBatchFaults(of, v.open.Task, e.total.findings)
	e.exposed = e.reached()
	for _, n := range e.numbers {
		for _, one := range n.versions {
			one.record.slots.free()
		}
	}
	e.total.tags, e.numbers, e.closed = nil, nil, true
	return nil
}

// IsClosed says whether an epoch is complete: see [Verifier.Complete].
func (v *Verifier) IsClosed(of uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[of]
	return e != nil && e.closed
}

// has says whether a batch of a number has been added as a whole.
func (v *Verifier) has(epoch, seq uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epochs.has(epoch, seq)
}

// Whole says whether the signed ends of all epochs are here, with something of every batch that they tell of: nothing
// more is to come.
func (v *Verifier) Whole() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epochs.whole(v.open.Epochs.Count)
}

// Note adds a finding that has no record.
func (v *Verifier) Note(name finding.Name, example string) { v.NoteAt(name, 1, nowhere(example)) }

// NoteAt adds n findings of one name that have no record; at is where, of several the first.
func (v *Verifier) NoteAt(name finding.Name, n uint64, at Place) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults.add(name, n, at)
	v.cached = nil
}

// Findings returns what did not add up so far, but for what shows only when batches are opened.
func (v *Verifier) Findings() []finding.Finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.findingsWithoutSlots().list()
}

// findingsWithoutSlots returns the findings that need no slots. v.mu is held.
func (v *Verifier) findingsWithoutSlots() findings {
	f := findings{}
	f.merge(v.faults)
	v.epochs.findBatchFaults(v.open.Task, f)
	return f
}

// mutableEpoch returns an epoch that something is to be changed of. v.mu is held.
func (v *Verifier) mutableEpoch(of uint64) *epoch {
	v.cached = nil
	return v.epochs.at(of)
}

// OpenIncoming reads a batch to its end and returns its record, which changes nothing: [Verifier.AddRecord] adds it.
func (v *Verifier) OpenIncoming(b *Incoming) (*Record, error) { return v.recorder.record(b) }

// ReadRecord reads the msgpack form and checks it against the task: the chain of manifests of what it
// says to be a record of, the sizes of its parts, and its aggregate by its slots.
func (v *Verifier) ReadRecord(in io.Reader) (*Record, error) {
	r := codec.NewReader(in)
	record, err := v.recorder.read(r)
	if err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		record.slots.free()
		return nil, err
	}
	return record, nil
}

// SignedRecord returns the record of what the last relay signed for a number, without a batch that counts.
func (v *Verifier) SignedRecord(signed *onion.SignedManifest, epoch, seq uint64) (*Record, error) {
	return newRecord(v.open, signed, epoch, seq, 0)
}

// EraseKey erases the key of an epoch, and says whether it was still there.
func (v *Verifier) EraseKey(epoch uint64) (erased bool, err error) {
	if _, err := v.recorder.keys.Key(epoch); errors.Is(err, keyfile.ErrErased) {
		return false, nil
	}
	if err := v.recorder.keys.Erase(epoch); err != nil {
		return false, fmt.Errorf("couldn't erase the key of epoch %d: %w", epoch, err)
	}
	return true, nil
}
