package onion

import (
	"crypto/rand"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// SetSealer seals the submissions of a set. A submission has one slot for each table, sealed under the table's own task
// and epoch, and one envelope under the set's id, sealed to the first relay's key of the first table:
//
//	envelope = Seal(relay 0, [tag, [slot at hop 1 …]])    one slot per table
type SetSealer struct {
	id     task.ID
	tables []*Sealer
}

// NewSetSealer returns a sealer for the set with an id. tables are the sealers of its tables, which have the same
// relays and KEM, and one slot for each client.
func NewSetSealer(id task.ID, tables []*Sealer) *SetSealer { return &SetSealer{id, tables} }

// SetSlot is what a submission of a set says for one table. A table to which the client does not report has a cover.
type SetSlot struct {
	Epoch   uint64 // Of the table's task: the one that contains the day, or the nearest.
	Message task.Message
}

// Seal returns the submission body for a day, an epoch of the first table. Without tags, every layer has a random tag.
// The drafts of one day have the same tags: see [SetSealer.Tags].
func (s *SetSealer) Seal(day uint64, slots []SetSlot, tags ...[TagSize]byte) ([]byte, error) {
	if len(slots) != len(s.tables) {
		return nil, fmt.Errorf("invalid number of slots %d: want %d", len(slots), len(s.tables))
	}
	if tags == nil {
		tags = s.Tags()
	}
	hops := s.tables[0].task.VerifierHop()
	if len(tags) != 1+len(slots)*hops {
		return nil, fmt.Errorf("invalid number of tags %d: want %d", len(tags), 1+len(slots)*hops)
	}
	if err := s.tables[0].checkEpoch(day); err != nil {
		return nil, err
	}
	layouts := make([]Layout, len(s.tables))
	for i, table := range s.tables {
		layouts[i] = table.Layout
	}
	plain := make([]byte, 0, setContent(layouts))
	plain = codec.AppendBytes(codec.AppendArray(plain, 2), tags[0][:])
	plain = codec.AppendArray(plain, len(slots))
	for i, slot := range slots {
		sealed, err := s.tables[i].sealTable(slot, tags[i*hops:][:hops+1])
		if err != nil {
			return nil, fmt.Errorf("table %d: %w", i, err)
		}
		plain = codec.AppendBytes(plain, sealed)
	}
	sealed, err := seal(s.tables[0].keys[0][day], Context{s.id, day, 0}, 0, kindSet, plain)
	if err != nil {
		return nil, err
	}
	return bodyOf(sealed), nil
}

// Tags returns random tags for a day's drafts: the envelope's, and for each table one for each hop from 1 on.
func (s *SetSealer) Tags() [][TagSize]byte {
	tags := make([][TagSize]byte, 1+len(s.tables)*s.tables[0].task.VerifierHop())
	for i := range tags {
		rand.Read(tags[i][:])
	}
	return tags
}

// sealTable seals a table's slot for hop 1. tags[h] is the tag of hop h, from 1 on.
func (s *Sealer) sealTable(slot SetSlot, tags [][TagSize]byte) ([]byte, error) {
	if err := s.checkEpoch(slot.Epoch); err != nil {
		return nil, err
	}
	if err := s.checkLanes([][]task.Message{{slot.Message}}); err != nil {
		return nil, err
	}
	return s.sealFrom(slot.Epoch, 1, 0, slot.Message, tags)
}

// SetBody returns the size of a submission body of a set with these tables, in bytes.
func SetBody(tables []Layout) int {
	return arrayHeader(2) + 1 + bytesSize(setContent(tables)+tables[0].overhead)
}

// setContent returns the size of an envelope's plaintext.
func setContent(tables []Layout) int {
	size := arrayHeader(2) + bytesSize(TagSize) + arrayHeader(len(tables))
	for _, table := range tables {
		size += bytesSize(table.SlotSize(1))
	}
	return size
}

// OpenSet opens a submission body of a set at the first relay. The opener is one of the first table's key, under the
// set's id. The envelope has one lane for each table, with one slot. OpenSet returns errors as [Opener.OpenEnvelope].
func (o *Opener) OpenSet(body []byte, tables []Layout) (*Envelope, error) {
	if n, want := len(body), SetBody(tables); n != want {
		return nil, fmt.Errorf("invalid submission of %d bytes: want %d", n, want)
	}
	sealed, err := readSubmission(body)
	if err != nil {
		return nil, err
	}
	plain, err := o.sealed.open(aad(0, kindSet), sealed)
	if err != nil {
		return nil, err
	}
	v := codec.NewView(plain)
	v.ArrayOf(2)
	tag, n := v.Bytes(), v.Array()
	if len(tag) != TagSize || n != len(tables) {
		return nil, fmt.Errorf("invalid envelope of %d slots with a tag of %d bytes: want %d, %d", n, len(tag), len(tables),
			TagSize)
	}
	e := &Envelope{[TagSize]byte(tag), make(Lanes, n)}
	for i := range e.Lanes {
		slot := v.Bytes()
		if len(slot) != tables[i].SlotSize(1) {
			return nil, fmt.Errorf("invalid slot of %d bytes for table %d: want %d", len(slot), i, tables[i].SlotSize(1))
		}
		e.Lanes[i] = [][]byte{slot}
	}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode an envelope: %w", err)
	}
	return e, nil
}
