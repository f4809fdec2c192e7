// Package verifier is the analyzer: it checks the batches of a task against their chain of
// manifests, opens them, and turns the messages into estimates with error bars, the guarantee
// they were collected under, and findings about what did not add up.
//
// Its findings protect accuracy only. Privacy does not rest on them: towards the clients the
// verifier is the adversary, and every relay has enforced the conditions before it.
package verifier

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Verifier adds up the batches of one task. What it reports does not depend on the order in which they
// come. It is safe for concurrent use.
type Verifier struct {
	open      *taskfile.Open
	keys      *keyfile.HPKE       // nil: nothing can be opened.
	mechanism protocols.Mechanism // nil: nothing is added up.
	labels    []string            // Of the entries.

	space *scratchSpace // Of the slots of records.

	mu       sync.Mutex // guards the rest
	epochs   map[uint64]*epoch
	faults   findings        // Of what is no record.
	progress func() Progress // Of the collector; nil where there is none.
	override bool            // Show what is unusable.
	made     *Report         // Of all that is known; nil where something has changed since the last one.
	ledger   ledgerCache
	booking  *booking // Nil: nothing is charged.
}

// HopCounts is what one relay's manifests say became of the slots it took in.
type HopCounts struct {
	Relay     int    `json:"relay"`     // From 1, the one clients submit to.
	In        uint64 `json:"in"`        // Slots taken in: Out + Dropped + Destroyed.
	Out       uint64 `json:"out"`       // Slots handed on.
	Dropped   uint64 `json:"dropped"`   // Unreadable or repeated slots.
	Destroyed uint64 `json:"destroyed"` // Slots of batches destroyed for being too small.
}

func (h *HopCounts) add(o HopCounts) {
	h.In += o.In
	h.Out += o.Out
	h.Dropped += o.Dropped
	h.Destroyed += o.Destroyed
}

// Counts says what became of the messages that the first relay accepted; each is counted once,
// however many hops it passed.
type Counts struct {
	Users    uint64 // Submissions in released batches.
	Batches  uint64 // Released batches.
	Crowded  uint64 // Released batches in which n_min clients can be honest: [onion.Crowded].
	Sent     uint64 // Slots accepted by the first relay: all of the below.
	Covers   uint64 // Covers found; they carry nothing.
	Verified uint64 // Messages aggregated.
	Rejected uint64 // Slots dropped by a relay, or by the verifier as unreadable or repeated.
	Withheld uint64 // Slots in batches that were destroyed for being too small.

	Lost        uint64 // Rejected of released batches.
	Incomplete  uint64 // Batches withheld for lacking messages: [finding.Incomplete].
	OverExposed uint64 // Submissions of batches that came here though too small: [finding.TooFew].
}

// loss is what did not come through of the released batches.
func (c *Counts) loss() protocols.Loss { return protocols.Loss{Clients: c.Users, Messages: c.Lost} }

func (c *Counts) add(o Counts) {
	c.Users += o.Users
	c.Batches += o.Batches
	c.Crowded += o.Crowded
	c.Sent += o.Sent
	c.Covers += o.Covers
	c.Verified += o.Verified
	c.Rejected += o.Rejected
	c.Withheld += o.Withheld
	c.Lost += o.Lost
	c.Incomplete += o.Incomplete
	c.OverExposed += o.OverExposed
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
	v := NewChecker(open)
	v.keys, v.mechanism, v.labels = keys, m, Labels(open.Task)
	return v, nil
}

// NewChecker returns a verifier that has findings and no report: it opens nothing.
func NewChecker(open *taskfile.Open) *Verifier {
	v := &Verifier{open: open, epochs: map[uint64]*epoch{}, faults: findings{}}
	v.Scratch("")
	return v
}

// scratchMemory is how many bytes of slots a verifier holds in memory.
var scratchMemory = 16 << 20

// Scratch has slots that memory has no room for go to a file without a name in a folder, encrypted under a key that is
// only in memory: until their epoch has ended, or as long as the verifier lives. Without it, or with "", that is the
// system's folder for temporary files. It is called before anything is added.
func (v *Verifier) Scratch(folder string) {
	v.space = newScratch(folder, max(pieceBytes, v.slotSize()), scratchMemory)
}

// Close gives back what records' slots take of memory and of the disk. The verifier is of no use any more.
func (v *Verifier) Close() error { return v.space.Close() }

// ShowUnusable overrides the rule that an unusable report has no estimate. The report says that it was
// overridden.
func (v *Verifier) ShowUnusable() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.override, v.made = true, nil
}

// Check verifies a batch of the last relay without opening it, and returns its chain of manifests
// from the first relay on. It needs no key.
func Check(open *taskfile.Open, batch *onion.Batch) ([]onion.Manifest, error) {
	header, err := batch.Header()
	if err != nil {
		return nil, err
	}
	if header.Epoch >= open.Epochs.Count {
		return nil, fmt.Errorf("couldn't accept a batch of epoch %d: the task has %d", header.Epoch, open.Epochs.Count)
	}
	last := onion.Context{TaskID: open.ID, Epoch: header.Epoch, Hop: open.VerifierHop() - 1}
	return batch.Check(open.Task, last, header.Seq)
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
	if v.Has(last.Epoch, last.Seq) {
		return fmt.Errorf("couldn't add batch %d of epoch %d: added before", last.Seq, last.Epoch)
	}
	r, err := v.record(b)
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// AddFile adds a file, a batch or the signed end of an epoch, or notes what is wrong with it. It is read once, a chunk
// at a time. Its error is one of the verifier, not of the file.
func (v *Verifier) AddFile(name string, in io.Reader) error {
	buffered := bufio.NewReaderSize(in, readAhead)
	if lead, _ := buffered.Peek(1); len(lead) == 1 && lead[0] == endLead {
		return v.addEnd(name, buffered)
	}
	err := v.addBatch(name, buffered)
	if fault := new(Fault); errors.As(err, &fault) {
		v.Note(fault.Name, name+": "+fault.Err.Error())
		if fault.Signed == nil {
			return nil
		}
		return v.Witness(fault.Signed, fault.Epoch, fault.Seq, 0)
	}
	if unread := new(ReadError); errors.As(err, &unread) {
		v.Note(finding.Unread, name+": "+unread.Err.Error())
		return nil
	}
	return err
}

// readAhead is how many bytes of a file are read at once.
const readAhead = 256 << 10

// addBatch adds a batch file. A [Fault] or [ReadError] is the file's.
func (v *Verifier) addBatch(name string, in io.Reader) error {
	b, err := Receive(v.open, in)
	if err != nil {
		return err
	}
	last := b.Last()
	if v.keys == nil || v.Has(last.Epoch, last.Seq) {
		if err := b.Check(); err != nil {
			return err
		}
		return v.Witness(b.Signed, last.Epoch, last.Seq, 1)
	}
	r, err := v.record(b)
	if errors.Is(err, keyfile.ErrErased) {
		v.Note(finding.Erased, name+": "+err.Error())
		return v.Witness(b.Signed, last.Epoch, last.Seq, 0)
	}
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// endLead is the first byte of a signed end, an array of two; a batch is one of four.
const endLead = 0x92

// addEnd adds the signed end of an epoch by the last relay.
func (v *Verifier) addEnd(name string, in io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(in, maxEnd))
	if err != nil {
		v.Note(finding.Unread, name+": "+err.Error())
		return nil
	}
	of, batches, err := readEnd(v.open, raw)
	if err != nil {
		v.Note(finding.Foreign, name+": "+err.Error())
		return nil
	}
	return v.End(of, batches)
}

// Witness adds what the last relay signed for a number, without the batch's slots.
func (v *Verifier) Witness(signed *onion.SignedManifest, epoch, seq, copies uint64) error {
	r, err := newRecord(v.open, signed, epoch, seq, copies)
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// Open returns the record of a batch that passes [Check]. It changes nothing: [Verifier.AddRecord] adds it.
func (v *Verifier) Open(batch *onion.Batch) (*Record, error) {
	b, err := inMemory(v.open, batch)
	if err != nil {
		return nil, err
	}
	return v.record(b)
}

// record reads a batch to its end and returns its record. Where the key is erased, it is read all the same: what is
// wrong with it comes first.
func (v *Verifier) record(b *Incoming) (*Record, error) {
	last := b.Last()
	r, err := newRecord(v.open, b.Signed, last.Epoch, last.Seq, 1)
	if err != nil {
		return nil, err
	}
	if last.Destroyed() || v.suffices(last) != nil {
		return r, b.Check()
	}
	opener, err := v.opener(last)
	if err != nil {
		return nil, cmp.Or(b.Check(), err)
	}
	f := v.newFold(r)
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

// opener returns the opener of a batch, or [keyfile.ErrErased].
func (v *Verifier) opener(last *onion.Manifest) (*onion.Opener, error) {
	if v.keys == nil {
		return nil, errors.New("couldn't open a batch: no keys")
	}
	key, err := v.keys.Key(last.Epoch)
	if err != nil {
		return nil, fmt.Errorf("couldn't open batch %d of epoch %d: %w", last.Seq, last.Epoch, err)
	}
	return onion.NewOpener(v.open.Task, v.open.ID, v.open.VerifierHop(), last.Epoch, key)
}

// suffices is an error where a batch is too small for its relay to have released it, by the relay's own
// counts. It is not opened: the promise does not hold for its clients.
func (v *Verifier) suffices(last *onion.Manifest) error {
	out := make([]uint64, len(last.Lanes))
	for lane, n := range last.Lanes {
		out[lane] = n.Out
	}
	return onion.CheckCounts(v.open.Task, last.Submissions, out)
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
	e := v.epoch(r.Epoch)
	if e.closed {
		r.slots.free()
		return fmt.Errorf("couldn't add batch %d of epoch %d: the epoch is complete", r.Seq, r.Epoch)
	}
	if len(e.numbers) > 0 && !bytes.Equal(e.settlement(), r.Settled.Among) {
		r.slots.free()
		return fmt.Errorf("couldn't add batch %d of epoch %d: %w", r.Seq, r.Epoch, errSettled)
	}
	e.put(hash, r, chain)
	return nil
}

// Complete says that there is no further batch of an epoch, and lets its records go, replay set and all.
// What is kept of all epochs together then does not grow with their messages.
func (v *Verifier) Complete(of uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epoch(of)
	if e.closed {
		return nil
	}
	if err := v.addUp(e); err != nil {
		return err
	}
	e.findPlaces(of, v.open.Task, e.total.findings)
	e.exposed = e.reached()
	for _, n := range e.numbers {
		for _, one := range n.versions {
			one.record.slots.free()
		}
	}
	e.total.tags, e.numbers, e.closed = nil, nil, true
	return nil
}

func (v *Verifier) IsClosed(of uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[of]
	return e != nil && e.closed
}

// Has says whether a batch of a number has been added as a whole.
func (v *Verifier) Has(epoch, seq uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[epoch]
	if e == nil || e.numbers[seq] == nil {
		return false
	}
	return slices.ContainsFunc(e.numbers[seq].versions, func(one *signedVersion) bool {
		return one.record.Copies > 0
	})
}

// Note adds a finding that has no record.
func (v *Verifier) Note(name finding.Name, example string) { v.NoteAt(name, 1, nowhere(example)) }

func (v *Verifier) NoteAt(name finding.Name, n uint64, at Place) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults.add(name, n, at)
	v.made = nil
}

// Findings returns what did not add up so far, but for what shows only when batches are opened.
func (v *Verifier) Findings() []finding.Finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.places().list()
}

// places returns the findings that need no slots. v.mu is held.
func (v *Verifier) places() findings {
	f := findings{}
	f.merge(v.faults)
	for _, of := range v.sortedEpochs() {
		if e := v.epochs[of]; !e.closed { // else they are in its total
			e.findPlaces(of, v.open.Task, f)
		}
	}
	return f
}

// sortedEpochs returns the numbers of the epochs seen, ascending. v.mu is held.
func (v *Verifier) sortedEpochs() []uint64 {
	var numbers []uint64
	for number := range v.epochs {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// Task returns the task.
func (v *Verifier) Task() *taskfile.Open { return v.open }

// OpenIncoming reads a batch to its end and returns its record, as [Verifier.Open] does of one in memory.
func (v *Verifier) OpenIncoming(b *Incoming) (*Record, error) { return v.record(b) }

// EraseKey erases the key of an epoch, and says whether it was still there.
func (v *Verifier) EraseKey(epoch uint64) (erased bool, err error) {
	if _, err := v.keys.Key(epoch); errors.Is(err, keyfile.ErrErased) {
		return false, nil
	}
	if err := v.keys.Erase(epoch); err != nil {
		return false, fmt.Errorf("couldn't erase the key of epoch %d: %w", epoch, err)
	}
	return true, nil
}
