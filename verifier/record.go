package verifier

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// recordLabel opens every record.
const recordLabel = "doona-record"

// Record is what a verifier keeps of one batch: all that estimates need of it. It is made from the batch
// and the key of its epoch alone, so that records may be made anywhere and in any order and brought
// together later. Its msgpack form is canonical (docs/SPEC.md, section 14).
//
// Slots of other batches that came before are not taken out of it: what counts of a record shows beside
// those of its epoch. Of two slots with one tag the one counts that comes first by (epoch, number, index).
type Record struct {
	Label     string
	Version   uint64
	TaskID    []byte // 32 bytes.
	Epoch     uint64
	Seq       uint64
	Signed    []byte     // The last relay's [onion.SignedManifest], with the chain of those before it.
	Copies    uint64     // How often the batch was there as a whole; 0 where only the manifest was.
	Faults    SlotFaults // Slots of the batch that count for nothing wherever it stands.
	Aggregate []byte     // Of the messages in Lanes, see packCounters.
	Lanes     [][]byte   // Of the other slots by lane, in their order in the batch, see slotHeader.
}

// SlotFaults counts slots that carry nothing.
type SlotFaults struct {
	Unreadable, Malformed, OutOfDomain, Repeated uint64
}

// A slot in a record is the first half of its tag ‖ kind ‖ message. Clients draw tags at random: of n
// messages, two share a half with probability below n²/2^65, which costs the estimate a message.
const (
	tagHalf    = 8
	slotHeader = tagHalf + 1
	kindCover  = 0
	kindBody   = 1
)

// Bytes returns the msgpack form.
func (r *Record) Bytes() ([]byte, error) { return codec.Marshal(r) }

// version names what was signed: the SHA-256 of the manifest.
type version [sha256.Size]byte

// newRecord returns a record without slots.
func newRecord(open *taskfile.Open, signed *onion.SignedManifest, epoch, seq, copies uint64) (*Record, error) {
	raw, err := signed.Bytes()
	return &Record{Label: recordLabel, Version: task.Version, TaskID: open.ID[:], Epoch: epoch, Seq: seq, Signed: raw,
		Copies: copies, Aggregate: []byte{}, Lanes: [][]byte{}}, err
}

// ParseRecord reads the msgpack form and checks it against a task: the chain of manifests of what it
// says to be a record of, and the sizes of its parts.
func ParseRecord(open *taskfile.Open, in []byte) (*Record, error) {
	var r Record
	if err := codec.Unmarshal(in, &r); err != nil {
		return nil, err
	}
	if r.Label != recordLabel || r.Version != task.Version || string(r.TaskID) != string(open.ID[:]) {
		return nil, errors.New("couldn't accept a record: not of this version and task")
	}
	if _, _, err := r.open(open); err != nil {
		return nil, err
	}
	size := slotHeader + int(open.Slots.MessageBytes)
	for _, lane := range r.Lanes {
		if len(lane)%size != 0 {
			return nil, fmt.Errorf("couldn't accept a record: %d bytes of slots of %d", len(lane), size)
		}
	}
	if n := uint64(len(r.Lanes)); n != 0 && n != open.Slots.Lanes {
		return nil, fmt.Errorf("couldn't accept a record: %d lanes, want %d", n, open.Slots.Lanes)
	}
	return &r, nil
}

// open returns the version and, where the batch was there as a whole, the chain of manifests.
func (r *Record) open(open *taskfile.Open) (version, []onion.Manifest, error) {
	signed, err := onion.ParseSigned(r.Signed)
	if err != nil {
		return version{}, nil, err
	}
	m, fault := signedHere(open, signed)
	switch {
	case fault != nil:
		return version{}, nil, fault
	case m.Epoch != r.Epoch || m.Seq != r.Seq:
		return version{}, nil, fmt.Errorf("couldn't accept a record: its manifest is of epoch %d, batch %d", m.Epoch,
			m.Seq)
	case r.Copies == 0:
		return sha256.Sum256(signed.Manifest), nil, nil
	}
	last := onion.Context{TaskID: open.ID, Epoch: r.Epoch, Hop: open.VerifierHop() - 1}
	chain, err := signed.Check(open.Task, last, r.Seq)
	return sha256.Sum256(signed.Manifest), chain, err
}

// slots calls f for every slot in the order of the batch.
func (r *Record) slots(size int, f func(lane int, slot []byte)) {
	for lane, slots := range r.Lanes {
		for ; len(slots) > 0; slots = slots[size:] {
			f(lane, slots[:size])
		}
	}
}

// tagOf returns the half of the tag that a slot of a record begins with.
func tagOf(slot []byte) uint64 { return binary.BigEndian.Uint64(slot) }

// fill puts the opened slots of the batch into its record.
func (r *Record) fill(m protocols.Mechanism, lanes uint64, opened []slot) {
	aggregate, seen := m.Aggregate(), make(tags, len(opened))
	sizes := make([]int, lanes)
	for _, s := range opened {
		sizes[s.lane] += slotHeader + len(s.message.Body)
	}
	r.Lanes = make([][]byte, lanes)
	for lane := range r.Lanes {
		r.Lanes[lane] = make([]byte, 0, sizes[lane])
	}
	for _, s := range opened {
		if fault := r.Faults.judge(aggregate, seen, s); fault != nil {
			*fault++
			continue
		}
		kind := byte(kindBody)
		if s.message.Cover {
			kind = kindCover
		}
		lane := append(r.Lanes[s.lane], s.tag[:tagHalf]...)
		r.Lanes[s.lane] = append(append(lane, kind), s.message.Body...)
	}
	r.Aggregate = packCounters(aggregate)
}

// judge adds a slot to the aggregate of a batch, or returns the count that it belongs to.
func (f *SlotFaults) judge(aggregate protocols.Aggregate, seen tags, s slot) *uint64 {
	switch {
	case errors.Is(s.err, onion.ErrOpen):
		return &f.Unreadable
	case s.err != nil:
		return &f.Malformed
	}
	tag := tagOf(s.tag[:])
	if _, repeated := seen[tag]; repeated {
		return &f.Repeated
	}
	if !s.message.Cover && aggregate.Add(s.lane, s.message.Body) != nil {
		return &f.OutOfDomain
	}
	seen[tag] = struct{}{}
	return nil
}

// checkAggregate is an error unless the aggregate is that of the messages.
func (r *Record) checkAggregate(m protocols.Mechanism, size int) error {
	aggregate := m.Aggregate()
	var failed error
	r.slots(size, func(lane int, slot []byte) {
		switch kind := slot[tagHalf]; {
		case failed != nil || kind == kindCover:
		case kind != kindBody:
			failed = fmt.Errorf("a slot of kind %d", kind)
		default:
			failed = aggregate.Add(lane, slot[slotHeader:])
		}
	})
	if failed == nil && !bytes.Equal(packCounters(aggregate), r.Aggregate) {
		failed = errors.New("its aggregate is not that of its messages")
	}
	if failed != nil {
		return fmt.Errorf("couldn't accept a record: %w", failed)
	}
	return nil
}

// strip takes out what a batch that does not count is not needed for.
func (r *Record) strip() {
	r.Faults, r.Aggregate, r.Lanes = SlotFaults{}, []byte{}, [][]byte{}
}

// packCounters writes the numbers of an aggregate that are not 0: for each, how many that are 0 come before
// it, and the number, as the variable-length integers of package binary. An array of a million bins
// takes no more than its batch has messages.
func packCounters(a protocols.Aggregate) []byte {
	out, zeros := []byte{}, uint64(0)
	a.Counters(func(n *uint64) {
		if *n == 0 {
			zeros++
			return
		}
		out = binary.AppendUvarint(binary.AppendUvarint(out, zeros), *n)
		zeros = 0
	})
	return out
}

// unpackCounters fills an empty aggregate with what packCounters wrote, and nothing else.
func unpackCounters(a protocols.Aggregate, in []byte) error {
	rest, zeros, value, left := in, uint64(0), uint64(0), false
	next := func() {
		z, n := binary.Uvarint(rest)
		v, m := binary.Uvarint(rest[max(n, 0):])
		if left = n > 0 && m > 0; left {
			zeros, value, rest = z, v, rest[n+m:]
		}
	}
	next()
	a.Counters(func(n *uint64) {
		switch {
		case !left:
		case zeros > 0:
			zeros--
		default:
			*n = value
			next()
		}
	})
	if left || !bytes.Equal(packCounters(a), in) {
		return errors.New("couldn't read an aggregate: not of this task, or not in canonical form")
	}
	return nil
}
