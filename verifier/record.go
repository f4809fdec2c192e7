package verifier

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

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
// addSpends later. Its msgpack form is canonical (docs/SPEC.md, section 14).
//
// Slots of other batches that came before are not taken out of it: what counts of a record shows beside
// those of its epoch. Of two slots with one tag the one counts that comes first by (epoch, number, index).
type Record struct {
	recordHead
	slots *slotBuffer // The other slots by lane, in their order in the batch; nil: none.
}

// recordHead is all of a record but its slots.
type recordHead struct {
	Label     string
	Version   uint64
	TaskID    []byte // 32 bytes.
	Epoch     uint64
	Seq       uint64
	Signed    []byte     // The last relay's [onion.SignedManifest], with the chain of those before it.
	Copies    uint64     // How often the batch was there as a whole; 0 where only the manifest was.
	Faults    SlotFaults // Slots of the batch that count for nothing wherever it stands.
	Aggregate []byte     // Of the messages in its slots, see packCounters.
	Dedup     dedupTotal // What was taken out of its slots.
}

// SlotFaults counts slots that carry nothing.
type SlotFaults struct {
	Unreadable, Malformed, OutOfDomain, Repeated uint64
}

// A slot in a record is the first half of its tag ‖ kind ‖ message. Clients draw tags at random: of n
// messages, two share a half with probability below n²/2^65 (2.7·10⁻⁶ for 10⁷), which costs the estimate a message,
// and shows as repeated. A message that comes again has the same half: it is always found.
const (
	tagHalf    = 8
	slotHeader = tagHalf + 1
	kindCover  = 0
	kindBody   = 1
)

// Write writes the msgpack form, a piece of the slots at a time.
func (r *Record) Write(out io.Writer) error {
	w := codec.NewWriter(out)
	if err := r.write(w); err != nil {
		return fmt.Errorf("couldn't write a record: %w", err)
	}
	return nil
}

func (r *Record) write(w *codec.Writer) error {
	head, err := codec.Marshal(&r.recordHead)
	if err != nil {
		return err
	}
	w.Array(2)
	w.Bytes(head)
	return r.slots.write(w)
}

// Version names what was signed: the SHA-256 of the manifest.
type Version [sha256.Size]byte

// newRecord returns a record without slots.
func newRecord(open *taskfile.Open, signed *onion.SignedManifest, epoch, seq, copies uint64) (*Record, error) {
	raw, err := signed.Bytes()
	return &Record{recordHead: recordHead{Label: recordLabel, Version: task.Version, TaskID: open.ID[:], Epoch: epoch,
		Seq: seq, Signed: raw, Copies: copies, Aggregate: []byte{}, Dedup: noDedup}}, err
}

// open returns the version and, where the batch was there as a whole, the chain of manifests.
func (r *Record) open(open *taskfile.Open) (Version, []onion.Manifest, error) {
	signed, err := onion.ParseSigned(r.Signed)
	if err != nil {
		return Version{}, nil, err
	}
	m, fault := signedHere(open, signed)
	switch {
	case fault != nil:
		return Version{}, nil, fault
	case m.Epoch != r.Epoch || m.Seq != r.Seq:
		return Version{}, nil, fmt.Errorf("couldn't accept a record: its manifest is of epoch %d, batch %d", m.Epoch,
			m.Seq)
	case r.Copies == 0:
		return sha256.Sum256(signed.Manifest), nil, nil
	}
	last := onion.Context{TaskID: open.ID, Epoch: r.Epoch, Hop: open.VerifierHop() - 1}
	chain, err := signed.Check(open.Task, last, r.Seq)
	return sha256.Sum256(signed.Manifest), chain, err
}

// tagOf returns the half of the tag that a slot of a record begins with.
func tagOf(slot []byte) uint64 { return binary.BigEndian.Uint64(slot) }

// strip takes out what a batch that does not count is not needed for.
func (r *Record) strip() {
	r.slots.free()
	r.Faults, r.Aggregate, r.slots = SlotFaults{}, []byte{}, nil
	r.Dedup = dedupTotal{r.Dedup.ID, []uint64{}, 0, 0, []byte{}}
}

// Hash names what was signed, and is an error where that is not the last relay's for the record's place.
func (r *Record) Hash(open *taskfile.Open) (Version, error) {
	hash, _, err := r.open(open)
	return hash, err
}

// Free gives back what the slots take of memory and of the disk. Nothing can be done with the record any more.
func (r *Record) Free() { r.slots.free() }

// aggregates returns what all messages of a record add up to, the settled ones and those in its slots.
func (r *Record) aggregates(m protocols.Mechanism) (protocols.Aggregate, error) {
	all := m.Aggregate()
	if err := unpackCounters(all, r.Aggregate); err != nil || len(r.Dedup.Valid) == 0 {
		return all, err
	}
	alone := m.Aggregate()
	if err := unpackCounters(alone, r.Dedup.Aggregate); err != nil {
		return nil, err
	}
	return all, all.Merge(alone)
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
