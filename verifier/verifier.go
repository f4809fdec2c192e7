// Package verifier is the analyzer of the shuffle model. It checks the batches of a task against their chain of
// manifests and opens them. From the messages it computes estimates with error bars. A report also states the guarantee
// to the clients, and findings about what did not add up.
//
// Findings protect only the accuracy of the answer. Clients' privacy does not depend on them: the verifier is the
// clients' adversary, and every relay has already enforced the conditions of the guarantee.
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

// Verifier adds up the batches of one task. Its report does not depend on the order in which batches are added. It is
// safe for concurrent use.
//
// One lock guards its state. A [recorder] turns batches into records without the lock. An [adder] adds up the records
// that count. A [charger] charges epochs to the budget before a report shows them.
type Verifier struct {
	subject
	recorder *recorder
	adder    *adder
	labels   []string  // Names of the answer's entries.
	edges    []float64 // Edges of the bins of a histogram over a range; else empty.

	mu       sync.Mutex // guards the rest
	epochs   epochs
	faults   findings                         // Findings that belong to no record.
	progress func() Progress                  // Returns the progress of pulling; nil if nothing is pulled.
	visits   func() (map[int64]uint64, error) // Returns the reports of a task that counts visits; or nil.
	override bool                             // Show unusable estimates, too.
	cached   cached                           // The last reports; none after a change of the state.
	costs    *costs
	charger  *charger // nil: charge nothing
}

// cached holds the last reports: one that charged its epochs, and one that charged nothing. charged is how many epochs
// of the stream were charged when overview was made.
type cached struct {
	report, overview *Report
	charged          uint64
}

// subject is the analyzed task with its protocol's mechanism.
type subject struct {
	open      *taskfile.Open
	mechanism protocols.Mechanism // nil in a verifier that computes no estimate
}

// New returns a verifier for a task. It derives the task's claim again, and returns an error if the claim is wrong. The
// private keys must belong to the key list that the task names for the verifier. If keys is nil, the verifier adds
// records but opens no batch.
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

// NewChecker returns a verifier that only collects findings. It opens no slots and has no report.
func NewChecker(open *taskfile.Open) *Verifier { return newVerifier(subject{open: open}, nil) }

func newVerifier(of subject, keys *keyfile.HPKE) *Verifier {
	v := &Verifier{subject: of, recorder: &recorder{subject: of, keys: keys}, adder: &adder{of},
		epochs: epochs{}, faults: findings{}, costs: newCosts(of)}
	if of.mechanism != nil {
		v.labels, v.edges = Labels(of.open.Task), edges(of.open.Task)
	}
	v.Scratch("")
	return v
}

// Fresh returns an empty verifier of the same task with the same keys.
func (v *Verifier) Fresh() *Verifier { return newVerifier(v.subject, v.recorder.keys) }

// Task returns the analyzed task.
func (v *Verifier) Task() *taskfile.Open { return v.open }

// scratchMemory is how many bytes of slots a verifier keeps in memory at most.
var scratchMemory = 16 << 20

// Scratch sets the folder for slots that do not fit into memory. They go to a file without a name, encrypted under a
// key that exists only in memory. The verifier frees them when their epoch is complete, or when it is closed. The
// default, also for "", is the system's folder for temporary files. Call Scratch before adding anything.
func (v *Verifier) Scratch(folder string) {
	v.recorder.space = newScratch(folder, max(pieceBytes, v.recorder.slotSize()), scratchMemory)
}

// Close frees the memory and disk space of all slots. Do not use the verifier afterwards.
func (v *Verifier) Close() error { return v.recorder.space.Close() }

// ShowUnusable makes reports show unusable estimates, too. A report then states the override.
func (v *Verifier) ShowUnusable() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.override, v.cached = true, cached{}
}

// Add checks, opens and adds a batch. If the batch fails a check or was added before, Add returns an error and changes
// nothing. A destroyed batch is counted but adds nothing to the estimate.
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

// AddRecord adds a record and takes ownership of it. It returns an error if the epoch is complete, or if another record
// of the epoch was deduplicated in another run.
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

// RecordManifest adds a manifest that the last relay signed, without the slots of its batch. copies is how often the
// whole batch was received.
func (v *Verifier) RecordManifest(signed *onion.SignedManifest, epoch, seq, copies uint64) error {
	r, err := newRecord(v.open, signed, epoch, seq, copies)
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// End sets the number of an epoch's batches, from the epoch's signed end.
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

// Complete declares that an epoch gets no further batch. It adds up the epoch and frees its records and replay set. So
// memory does not grow with the messages of past epochs.
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

// IsClosed reports whether an epoch is complete, after a call of [Verifier.Complete].
func (v *Verifier) IsClosed(of uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[of]
	return e != nil && e.closed
}

// has reports whether a whole batch with this number was added.
func (v *Verifier) has(epoch, seq uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epochs.has(epoch, seq)
}

// Whole reports whether nothing is missing: the signed ends of all epochs were added, and a batch or manifest for each
// batch number that the ends announce.
func (v *Verifier) Whole() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epochs.whole(v.open.Epochs.Count)
}

// Note adds a finding that belongs to no record.
func (v *Verifier) Note(name finding.Name, example string) { v.NoteAt(name, 1, noPosition(example)) }

// NoteAt adds n findings of one name that belong to no record. at is the position of the first.
func (v *Verifier) NoteAt(name finding.Name, n uint64, at Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults.add(name, n, at)
	v.cached = cached{}
}

// Findings returns the findings so far, except findings that only opened slots show.
func (v *Verifier) Findings() []finding.Finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.findingsWithoutSlots().list()
}

// findingsWithoutSlots returns the findings that need no opened slots. The caller holds v.mu.
func (v *Verifier) findingsWithoutSlots() findings {
	f := findings{}
	f.merge(v.faults)
	v.epochs.findBatchFaults(v.open.Task, f)
	return f
}

// mutableEpoch returns an epoch that the caller may change. It also drops the cached report. The caller holds v.mu.
func (v *Verifier) mutableEpoch(of uint64) *epoch {
	v.cached = cached{}
	return v.epochs.at(of)
}

// OpenIncoming reads a batch to its end and returns its record. [Verifier.AddRecord] adds the record.
func (v *Verifier) OpenIncoming(b *Incoming) (*Record, error) { return v.recorder.record(b) }

// ReadRecord reads the msgpack form of a record. It checks the record against the task: its chain of manifests, the
// sizes of its parts, and its aggregate against its slots.
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

// SignedRecord returns a record that has only a manifest that the last relay signed, and no slots.
func (v *Verifier) SignedRecord(signed *onion.SignedManifest, epoch, seq uint64) (*Record, error) {
	return newRecord(v.open, signed, epoch, seq, 0)
}

// EraseKey erases the key of an epoch. erased is false if the key was already erased.
func (v *Verifier) EraseKey(epoch uint64) (erased bool, err error) {
	if _, err := v.recorder.keys.Key(epoch); errors.Is(err, keyfile.ErrErased) {
		return false, nil
	}
	if err := v.recorder.keys.Erase(epoch); err != nil {
		return false, fmt.Errorf("couldn't erase the key of epoch %d: %w", epoch, err)
	}
	return true, nil
}
