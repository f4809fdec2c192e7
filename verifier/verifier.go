// Package verifier is the analyzer: it checks the batches of a task against their chain of
// manifests, opens them, and turns the messages into estimates with error bars, the guarantee
// they were collected under, and findings about what did not add up.
//
// Its findings protect accuracy only. Privacy does not rest on them: towards the clients the
// verifier is the adversary, and every relay has enforced the conditions before it.
package verifier

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Verifier aggregates the batches of one task. It is safe for concurrent use.
type Verifier struct {
	open      *taskfile.Open
	keys      *keyfile.HPKE
	mechanism protocols.Mechanism

	mu       sync.Mutex // guards epochs and findings
	epochs   map[uint64]*epoch
	findings map[FindingName]*Finding
}

// epoch is what has been aggregated of one epoch.
type epoch struct {
	aggregate protocols.Aggregate
	batches   map[uint64]bool // By number; false where nothing was released.
	tags      tags            // Of all messages opened, to find replays; nil when the epoch is complete.
	counts    Counts
	hops      []HopCounts // By relay.
}

// tags is a replay set of the first halves of tags. Clients draw them at random: of n messages, two
// share one with probability below n²/2^65, which costs the estimate a message.
type tags map[uint64]struct{}

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
	Sent     uint64 // Slots accepted by the first relay: all of the below.
	Covers   uint64 // Covers found; they carry nothing.
	Verified uint64 // Messages aggregated.
	Rejected uint64 // Slots dropped by a relay, or by the verifier as unreadable or repeated.
	Withheld uint64 // Slots in batches that were destroyed for being too small.
}

func (c *Counts) add(o Counts) {
	c.Users += o.Users
	c.Batches += o.Batches
	c.Sent += o.Sent
	c.Covers += o.Covers
	c.Verified += o.Verified
	c.Rejected += o.Rejected
	c.Withheld += o.Withheld
}

// FindingName says what did not add up.
type FindingName string

// The names of findings. The first four count slots, the others batches.
const (
	FindingDropped    FindingName = "dropped"    // A relay dropped it as unreadable or repeated.
	FindingUnreadable FindingName = "unreadable" // The verifier's key does not open it.
	FindingMalformed  FindingName = "malformed"  // It is none of the protocol's messages.
	FindingRepeated   FindingName = "repeated"   // It was there before.

	FindingDestroyed  FindingName = "destroyed"  // A relay destroyed it for being too small.
	FindingTooFew     FindingName = "too-few"    // Too few of its slots are valid; withheld.
	FindingIncomplete FindingName = "incomplete" // Not all of its shares are there; withheld.
	FindingForeign    FindingName = "foreign"    // It is not of this task.
	FindingRefused    FindingName = "refused"    // It is not as its relays signed it.
	FindingMissing    FindingName = "missing"    // The last relay did not hand it over.
	FindingEnd        FindingName = "end"        // An epoch's signed end tells of fewer, or a relay gave up on it.
)

// Finding is something that did not add up.
type Finding struct {
	Name    FindingName `json:"name"`
	Count   uint64      `json:"count"`   // Slots or batches, as the name says.
	Example string      `json:"example"` // Where the first one was.
}

// New returns a verifier for a task whose claim it re-derives. The private keys must be those of
// the key list that the task names for the verifier.
func New(open *taskfile.Open, keys *keyfile.HPKE) (*Verifier, error) {
	if err := keys.Check(open.Task, open.KeyLists[open.VerifierHop()]); err != nil {
		return nil, err
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
	return &Verifier{open: open, keys: keys, mechanism: m, epochs: map[uint64]*epoch{},
		findings: map[FindingName]*Finding{}}, nil
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

// Add checks, opens and aggregates a batch. A batch that fails its checks, or was added before,
// is an error and changes nothing. A destroyed batch is counted and adds nothing to the estimate.
func (v *Verifier) Add(batch *onion.Batch) error {
	chain, err := Check(v.open, batch)
	if err != nil {
		return err
	}
	last := chain[len(chain)-1]
	if v.has(last.Epoch, last.Seq) {
		return fmt.Errorf("couldn't add batch %d of epoch %d: added before", last.Seq, last.Epoch)
	}
	var opened []slot
	if !last.Destroyed() {
		key, err := v.keys.Key(last.Epoch)
		if err != nil {
			return fmt.Errorf("couldn't open batch %d of epoch %d: %w", last.Seq, last.Epoch, err)
		}
		opener, err := onion.NewOpener(v.open.Task, v.open.ID, v.open.VerifierHop(), last.Epoch, key)
		if err != nil {
			return err
		}
		opened = openAll(opener, batch.Ciphertexts)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[last.Epoch]
	if e == nil {
		e = &epoch{aggregate: v.mechanism.Aggregate(), batches: map[uint64]bool{}, tags: tags{},
			hops: newHops(v.open.VerifierHop())}
		v.epochs[last.Epoch] = e
	}
	if _, again := e.batches[last.Seq]; again {
		return fmt.Errorf("couldn't add batch %d of epoch %d: added before", last.Seq, last.Epoch)
	}
	if e.tags == nil {
		return fmt.Errorf("couldn't add batch %d of epoch %d: the epoch is complete", last.Seq, last.Epoch)
	}
	counts, released := v.take(e, chain, opened)
	e.batches[last.Seq] = released
	e.counts.add(counts)
	return nil
}

// complete says that there is no further batch of an epoch, and lets its replay set go. What is kept
// of all epochs together then does not grow with their messages.
func (v *Verifier) complete(of uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.epochs[of]; e != nil {
		e.tags = nil
	}
}

func (v *Verifier) has(epoch, seq uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epochs[epoch]
	if e == nil {
		return false
	}
	_, ok := e.batches[seq]
	return ok
}

// slot is an opened slot.
type slot struct {
	lane    int
	tag     [onion.TagSize]byte
	message task.Message
	err     error
}

// openAll opens all ciphertexts on all cores.
func openAll(opener *onion.Opener, lanes onion.Lanes) []slot {
	var slots []slot
	var sealed [][]byte
	for lane, ciphertexts := range lanes {
		for _, c := range ciphertexts {
			slots, sealed = append(slots, slot{lane: lane}), append(sealed, c)
		}
	}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	share := (len(slots) + workers - 1) / workers
	for from := 0; from < len(slots); from += share {
		to := min(from+share, len(slots))
		wg.Go(func() {
			for i := from; i < to; i++ {
				s := &slots[i]
				s.tag, s.message, s.err = opener.OpenMessage(s.lane, sealed[i])
			}
		})
	}
	wg.Wait()
	return slots
}

// take aggregates the opened slots of a batch, unless too few of them are valid. v.mu is held.
func (v *Verifier) take(e *epoch, chain []onion.Manifest, opened []slot) (c Counts, released bool) {
	last := chain[len(chain)-1]
	where := fmt.Sprintf("epoch %d, batch %d", last.Epoch, last.Seq)
	c = countChain(chain, e.hops, func(name FindingName, n uint64) { v.find(name, n, where) })
	if last.Destroyed() {
		return c, false
	}
	batch := v.mechanism.Aggregate()
	valid := make([]uint64, v.open.Slots.Lanes)
	for _, s := range opened {
		fault := judge(e.tags, batch, s)
		switch {
		case fault != "":
			v.find(fault, 1, where)
			c.Rejected++
			continue
		case s.message.Cover:
			c.Covers++
		default:
			c.Verified++
		}
		valid[s.lane]++
	}
	if err := onion.CheckCounts(v.open.Task, last.Submissions, valid); err != nil {
		v.find(FindingTooFew, 1, where+": "+err.Error())
		c.Withheld, c.Verified = c.Withheld+c.Verified, 0
		return c, false
	}
	if err := protocols.CheckComplete(batch, last.Submissions); err != nil {
		v.find(FindingIncomplete, 1, where+": "+err.Error())
		c.Withheld, c.Verified = c.Withheld+c.Verified, 0
		return c, false
	}
	batch.AddUsers(last.Submissions)
	if err := e.aggregate.Merge(batch); err != nil {
		panic("verifier: internal error: " + err.Error())
	}
	c.Batches, c.Users = 1, last.Submissions
	return c, true
}

// judge adds one slot to a batch's aggregate; it returns the name of a finding where it cannot.
func judge(seen tags, batch protocols.Aggregate, s slot) FindingName {
	if s.err != nil {
		return FindingUnreadable
	}
	half := binary.BigEndian.Uint64(s.tag[:])
	if _, repeated := seen[half]; repeated {
		return FindingRepeated
	}
	seen[half] = struct{}{}
	if !s.message.Cover && batch.Add(s.lane, s.message.Body) != nil {
		return FindingMalformed
	}
	return ""
}

func newHops(relays int) []HopCounts {
	hops := make([]HopCounts, relays)
	for i := range hops {
		hops[i].Relay = i + 1
	}
	return hops
}

// countChain counts what the relays did to a batch, from their manifests, and adds it to hops.
func countChain(chain []onion.Manifest, hops []HopCounts, find func(name FindingName, n uint64)) (c Counts) {
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
	if c.Rejected > 0 {
		find(FindingDropped, c.Rejected)
	}
	if chain[len(chain)-1].Destroyed() {
		find(FindingDestroyed, 1)
	}
	return c
}

// Note records a finding about a batch that could not be added.
func (v *Verifier) Note(name FindingName, example string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.find(name, 1, example)
}

func (v *Verifier) find(name FindingName, n uint64, where string) {
	f := v.findings[name]
	if f == nil {
		f = &Finding{Name: name, Example: where}
		v.findings[name] = f
	}
	f.Count += n
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
