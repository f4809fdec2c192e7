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

const recordLabel = "doona-record"

// Record is everything that a verifier keeps of one batch and needs for estimates. It depends only on the batch and the
// key of its epoch, so several machines can make records in any order, and merge them later. Its msgpack form is
// canonical (docs/SPEC.md, section 14).
//
// A record also keeps slots that repeat slots of other batches. Which slots count is decided later, when all records of
// the epoch are there: of two slots with the same tag, the first by (epoch, batch number, index) counts.
type Record struct {
	recordHead
	slots *slotBuffer // Slots by lane, in the order of the batch; nil if there are none.
}

// recordHead is the part of a record without its slots.
type recordHead struct {
	Label     string
	Version   uint64
	TaskID    []byte // 32 bytes.
	Epoch     uint64
	Seq       uint64
	Signed    []byte     // The last relay's [onion.SignedManifest], which includes the manifests of all earlier relays.
	Copies    uint64     // How often the whole batch was received; 0 if only its manifest was received.
	Faults    SlotFaults // Slots that cannot count, whatever other batches hold.
	Aggregate []byte     // Sum of the messages in its slots; see packCounters.
	Dedup     dedupTotal // Sum of the slots that deduplication removed.
}

// SlotFaults counts slots that cannot count, by the reason.
type SlotFaults struct {
	Unreadable, Malformed, OutOfDomain, Repeated uint64
}

// A slot in a record is the first half of its tag ‖ kind ‖ message. Clients draw tags at random. Among n messages, two
// share a half tag with probability below n²/2^65 (2.7·10⁻⁶ for n = 10⁷). The estimate then loses one message, which is
// counted as repeated. A replayed message has the same half tag, so it is always found.
const (
	tagHalf    = 8
	slotHeader = tagHalf + 1
	kindCover  = 0
	kindBody   = 1
)

// Write writes the msgpack form. It holds one piece of the slots in memory at a time.
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

// Version is the SHA-256 of a signed manifest. It identifies the manifest.
type Version [sha256.Size]byte

func newRecord(open *taskfile.Open, signed *onion.SignedManifest, epoch, seq, copies uint64) (*Record, error) {
	raw, err := signed.Bytes()
	return &Record{recordHead: recordHead{Label: recordLabel, Version: task.Version, TaskID: open.ID[:], Epoch: epoch,
		Seq: seq, Signed: raw, Copies: copies, Aggregate: []byte{}, Dedup: noDedup}}, err
}

// open returns a record's version and, if the whole batch was received, its chain of manifests.
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

// tagOf returns the first half of a tag, which a slot of a record begins with.
func tagOf(slot []byte) uint64 { return binary.BigEndian.Uint64(slot) }

// strip frees what only a batch that counts needs.
func (r *Record) strip() {
	r.slots.free()
	r.Faults, r.Aggregate, r.slots = SlotFaults{}, []byte{}, nil
	r.Dedup = dedupTotal{r.Dedup.ID, []uint64{}, 0, 0, []byte{}}
}

// Hash returns the version of the record's manifest. It fails unless the last relay signed the manifest for the
// record's epoch and number.
func (r *Record) Hash(open *taskfile.Open) (Version, error) {
	hash, _, err := r.open(open)
	return hash, err
}

// Free frees the memory and disk space of the slots. The record cannot be used afterwards.
func (r *Record) Free() { r.slots.free() }

// aggregates returns the sum of all messages of a record: the messages in its slots, and those that deduplication
// removed.
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

// packCounters writes the nonzero counters of an aggregate. For each it writes the number of zeros before it, then its
// value, both as variable-length integers of package binary. So an array of a million bins takes no more space than the
// messages of its batch.
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

// unpackCounters fills an empty aggregate from the output of packCounters. Any other input is an error.
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
		return errors.New("couldn't read an aggregate: it is not of this task, or not in canonical form")
	}
	return nil
}
