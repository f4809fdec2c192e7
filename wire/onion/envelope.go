// Package onion defines the encrypted forms that parties exchange: HPKE layers over slots, envelopes that carry one
// client's slots to the first relay, and the signed manifests and batches between hops.
//
// A client seals a slot to the verifier first, and then to the relays from the last to the second. All slots of a
// client travel in one envelope to the first relay, so the first relay needs one public-key operation per client. Each
// layer opens to a random 16-byte tag for the hop that opens it, followed by the next layer. With relays 0..H-1 and the
// verifier as hop H:
//
//	slot at hop H   = Seal(verifier, tag ‖ kind ‖ message)
//	slot at hop h   = Seal(relay h,  tag ‖ slot at hop h+1)         1 ≤ h < H
//	envelope        = Seal(relay 0,  [tag, [[slot at hop 1 …] …]])    one inner list per lane
//
// docs/SPEC.md specifies the format. The package imports no protocol: to it, messages are opaque bytes of one size.
package onion

import (
	"crypto/rand"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// TagSize is the size of the random tag in every layer, in bytes.
const TagSize = 16

// The first byte after the tag in the innermost plaintext says what the slot holds.
const (
	slotCover   = 0 // A cover: the message is all zeros.
	slotMessage = 1
)

// Layout computes the sizes of a task's slots and submissions, in bytes.
type Layout struct {
	task     *task.Task
	overhead int
}

// NewLayout returns the layout of a task. It returns an error for an unknown KEM.
func NewLayout(t *task.Task) (Layout, error) {
	overhead, err := Overhead(t.KEM)
	return Layout{t, overhead}, err
}

// SlotSize returns the size in bytes of a slot as it arrives at a hop, 1 ≤ hop ≤ H. Hop H is the verifier.
func (l Layout) SlotSize(hop int) int {
	size := TagSize + 1 + int(l.task.Slots.MessageBytes) + l.overhead
	for h := l.task.VerifierHop(); h > hop; h-- {
		size += TagSize + l.overhead
	}
	return size
}

// SlotsPerClient returns how many slots each client sends under padding full, over all lanes.
func (l Layout) SlotsPerClient() int { return int(l.task.Slots.Lanes * l.task.Slots.PerLane) }

// MaxBody returns the largest size of a submission in bytes. Under padding full, every submission has this size.
func (l Layout) MaxBody() int {
	lanes, perLane := int(l.task.Slots.Lanes), int(l.task.Slots.PerLane)
	lane := arrayHeader(perLane) + perLane*bytesSize(l.SlotSize(1))
	content := arrayHeader(2) + bytesSize(TagSize) + arrayHeader(lanes) + lanes*lane
	return arrayHeader(2) + 1 + bytesSize(content+l.overhead) // 1 byte for the version
}

// arrayHeader returns the size in bytes of the msgpack header of an array of n elements.
func arrayHeader(n int) int {
	switch {
	case n < 1<<4:
		return 1
	case n < 1<<16:
		return 3
	}
	return 5
}

// bytesSize returns the size of a byte string of n bytes in msgpack, with its header.
func bytesSize(n int) int {
	switch {
	case n < 1<<8:
		return 2 + n
	case n < 1<<16:
		return 3 + n
	}
	return 5 + n
}

// plaintext returns tag ‖ kind ‖ message. A cover has zeros for kind and message, so covers differ only in their tags.
func (l Layout) plaintext(m task.Message, tags [][TagSize]byte) []byte {
	p := tagOf(tags, l.task.VerifierHop(), 1+int(l.task.Slots.MessageBytes))
	if !m.Cover {
		p = append(p, slotMessage)
		return append(p, m.Body...)
	}
	return append(p, make([]byte, 1+l.task.Slots.MessageBytes)...)
}

// tagOf returns the tag for a hop in a slice with capacity for room more bytes: the one in tags, or a random one if
// tags is nil.
func tagOf(tags [][TagSize]byte, hop, room int) []byte {
	tag := make([]byte, TagSize, TagSize+room)
	if tags == nil {
		rand.Read(tag)
	} else {
		copy(tag, tags[hop][:])
	}
	return tag
}

// Sealer seals clients' reports for one task. keys[h] holds the public keys of hop h by epoch, nil where it has none.
type Sealer struct {
	Layout
	taskID task.ID
	keys   [][]*PublicKey
}

// NewSealer returns a sealer for the task with the given id. lists holds the key lists of all hops in order, with the
// verifier's last. All have the keys of the same epochs. With the keys of one block it seals reports of these epochs
// only.
func NewSealer(t *task.Task, taskID task.ID, lists []*SignedKeyList) (*Sealer, error) {
	layout, err := NewLayout(t)
	if err != nil {
		return nil, err
	}
	if len(lists) != t.VerifierHop()+1 {
		return nil, fmt.Errorf("invalid key lists: got %d, want %d", len(lists), t.VerifierHop()+1)
	}
	s := &Sealer{Layout: layout, taskID: taskID}
	for hop, list := range lists {
		if list.First != lists[0].First || len(list.Keys) != len(lists[0].Keys) {
			return nil, fmt.Errorf("invalid keys of hop %d: of other epochs than those of hop 0", hop)
		}
		keys, err := PartyKeys(t, hop, list)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, keys)
	}
	return s, nil
}

// Seal returns the submission body of one report. lanes[l] holds the messages of lane l. The caller has already added
// the covers that the task's padding requires.
//
// Without tags, every layer has a random tag. The drafts of one report have the same tags, one for each hop, so that an
// honest relay passes at most one draft. Only a task with one slot has drafts (docs/proofs/drafts.md).
func (s *Sealer) Seal(epoch uint64, lanes [][]task.Message, tags ...[TagSize]byte) ([]byte, error) {
	if err := s.checkEpoch(epoch); err != nil {
		return nil, err
	}
	if err := s.checkLanes(lanes); err != nil {
		return nil, err
	}
	if tags != nil && (len(tags) != s.task.VerifierHop()+1 || s.SlotsPerClient() != 1) {
		return nil, fmt.Errorf("invalid number of tags %d: want %d, and a task with one slot", len(tags),
			s.task.VerifierHop()+1)
	}
	size := arrayHeader(2) + bytesSize(TagSize) + arrayHeader(len(lanes))
	for _, messages := range lanes {
		size += arrayHeader(len(messages)) + len(messages)*bytesSize(s.SlotSize(1))
	}
	plain := make([]byte, 0, size)
	plain = codec.AppendBytes(codec.AppendArray(plain, 2), tagOf(tags, 0, 0))
	plain = codec.AppendArray(plain, len(lanes))
	for lane, messages := range lanes {
		plain = codec.AppendArray(plain, len(messages))
		for _, m := range messages {
			slot, err := s.sealFrom(epoch, 1, lane, m, tags)
			if err != nil {
				return nil, err
			}
			plain = codec.AppendBytes(plain, slot)
		}
	}
	sealed, err := seal(s.keys[0][epoch], Context{s.taskID, epoch, 0}, 0, kindEnvelope, plain)
	if err != nil {
		return nil, err
	}
	return bodyOf(sealed), nil
}

// bodyOf returns the submission body with an envelope: msgpack [version, envelope].
func bodyOf(envelope []byte) []byte {
	body := codec.AppendSmall(codec.AppendArray(make([]byte, 0, 2+bytesSize(len(envelope))), 2), task.Version)
	return codec.AppendBytes(body, envelope)
}

// sealFrom seals a message in one layer for each hop from first to the verifier.
func (s *Sealer) sealFrom(epoch uint64, first, lane int, m task.Message, tags [][TagSize]byte) ([]byte, error) {
	plain := s.plaintext(m, tags)
	for hop := s.task.VerifierHop(); ; hop-- {
		slot, err := seal(s.keys[hop][epoch], Context{s.taskID, epoch, hop}, lane, kindSlot, plain)
		if err != nil || hop == first {
			return slot, err
		}
		plain = append(tagOf(tags, hop-1, len(slot)), slot...)
	}
}

// SealSlot seals a message for hop, hop ≥ 1, and all later hops. The result has the form of a slot that arrives at hop.
// So a relay's dummies look like slots that the relay has peeled.
func (s *Sealer) SealSlot(epoch uint64, hop, lane int, message []byte) ([]byte, error) {
	if err := s.checkEpoch(epoch); err != nil {
		return nil, err
	}
	if len(message) != int(s.task.Slots.MessageBytes) {
		return nil, fmt.Errorf("invalid message of %d bytes: want %d", len(message), s.task.Slots.MessageBytes)
	}
	return s.sealFrom(epoch, hop, lane, task.Message{Body: message}, nil)
}

// checkEpoch returns an error unless the task has an epoch and the sealer its keys.
func (s *Sealer) checkEpoch(epoch uint64) error {
	if epoch >= s.task.Epochs.Count {
		return fmt.Errorf("invalid epoch %d: want below %d", epoch, s.task.Epochs.Count)
	}
	if s.keys[0][epoch] == nil {
		return fmt.Errorf("couldn't seal for epoch %d: these are the keys of other epochs", epoch)
	}
	return nil
}

func (s *Sealer) checkLanes(lanes [][]task.Message) error {
	if uint64(len(lanes)) != s.task.Slots.Lanes {
		return fmt.Errorf("invalid lanes %d: want %d", len(lanes), s.task.Slots.Lanes)
	}
	for lane, messages := range lanes {
		if !slotCountOK(s.task, len(messages)) {
			return fmt.Errorf("invalid number of slots %d in lane %d: want %d, padding %s", len(messages), lane,
				s.task.Slots.PerLane, s.task.Slots.Padding)
		}
		for _, m := range messages {
			if !m.Cover && len(m.Body) != int(s.task.Slots.MessageBytes) {
				return fmt.Errorf("invalid message of %d bytes: want %d", len(m.Body), s.task.Slots.MessageBytes)
			}
		}
	}
	return nil
}

// slotCountOK reports whether a client may send n slots in a lane: exactly PerLane under padding full, 1 to PerLane
// under padding none.
func slotCountOK(t *task.Task, n int) bool {
	if t.Slots.Padding == task.PaddingFull {
		return uint64(n) == t.Slots.PerLane
	}
	return n >= 1 && uint64(n) <= t.Slots.PerLane
}

// Opener opens the ciphertexts that one hop of a task receives in one epoch.
type Opener struct {
	Layout
	context Context
	sealed  unsealer
}

// NewOpener returns the opener of a hop for an epoch. key is the hop's private key of that epoch.
func NewOpener(t *task.Task, taskID task.ID, hop int, epoch uint64, key *PrivateKey) (*Opener, error) {
	layout, err := NewLayout(t)
	if err != nil {
		return nil, err
	}
	if hop < 0 || hop > t.VerifierHop() {
		return nil, fmt.Errorf("invalid hop %d: want 0 to %d", hop, t.VerifierHop())
	}
	if key.enc+aeadTag != layout.overhead {
		return nil, fmt.Errorf("invalid key: not of the task's kem %s", t.KEM)
	}
	context := Context{taskID, epoch, hop}
	return &Opener{layout, context, newUnsealer(key, context.info(key.public.id))}, nil
}

// Envelope is an opened submission: its tag, by which a relay recognizes a replay, and the slots for hop 1 by lane.
type Envelope struct {
	Tag   [TagSize]byte
	Lanes Lanes
}

// OpenEnvelope opens a submission body at the first relay. It returns [ErrOpen] if the ciphertext does not open,
// [ErrErased] if the key was erased, and another error if the size or the content does not fit the task.
func (o *Opener) OpenEnvelope(body []byte) (*Envelope, error) {
	if n, most := len(body), o.MaxBody(); n > most || n < most && o.task.Slots.Padding == task.PaddingFull {
		return nil, fmt.Errorf("invalid submission of %d bytes: want %d, padding %s", n, most, o.task.Slots.Padding)
	}
	sealed, err := readSubmission(body)
	if err != nil {
		return nil, err
	}
	plain, err := o.sealed.open(aad(0, kindEnvelope), sealed)
	if err != nil {
		return nil, err
	}
	return o.readEnvelope(plain)
}

// readSubmission returns the envelope from the body that a client posts: msgpack [version, envelope].
func readSubmission(body []byte) ([]byte, error) {
	v := codec.NewView(body)
	parts, version, envelope := v.Array(), v.Small(), v.Bytes()
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode a submission: %w", err)
	}
	if parts != 2 {
		return nil, fmt.Errorf("invalid submission of %d parts: want 2", parts)
	}
	if version != task.Version {
		return nil, fmt.Errorf("invalid version %d: want %d", version, task.Version)
	}
	return envelope, nil
}

// readEnvelope parses the plaintext of an envelope: msgpack [tag, [[slot …] …]].
func (o *Opener) readEnvelope(plain []byte) (*Envelope, error) {
	v := codec.NewView(plain)
	parts, tag, lanes := v.Array(), v.Bytes(), v.Array()
	if parts != 2 || len(tag) != TagSize {
		return nil, fmt.Errorf("invalid envelope of %d parts with a tag of %d bytes: want 2, %d", parts, len(tag), TagSize)
	}
	if uint64(lanes) != o.task.Slots.Lanes {
		return nil, fmt.Errorf("invalid lanes %d: want %d", lanes, o.task.Slots.Lanes)
	}
	e := &Envelope{[TagSize]byte(tag), make(Lanes, lanes)}
	for lane := range e.Lanes {
		n := v.Array()
		if !slotCountOK(o.task, n) {
			return nil, fmt.Errorf("invalid number of slots %d in lane %d: want %d, padding %s", n, lane,
				o.task.Slots.PerLane, o.task.Slots.Padding)
		}
		e.Lanes[lane] = make([][]byte, n)
		for i := range n {
			slot := v.Bytes()
			if len(slot) != o.SlotSize(1) {
				return nil, fmt.Errorf("invalid slot of %d bytes in lane %d: want %d", len(slot), lane, o.SlotSize(1))
			}
			e.Lanes[lane][i] = slot
		}
	}
	if err := v.End(); err != nil {
		return nil, fmt.Errorf("couldn't decode an envelope: %w", err)
	}
	return e, nil
}

// OpenSlot opens a slot at a later relay. It returns the tag, by which the relay recognizes a replay, and the slot for
// the next hop.
func (o *Opener) OpenSlot(lane int, slot []byte) (tag [TagSize]byte, next []byte, err error) {
	plain, err := o.sealed.open(aad(lane, kindSlot), slot)
	if err != nil {
		return tag, nil, err
	}
	if len(plain) != TagSize+o.SlotSize(o.context.Hop+1) {
		return tag, nil, fmt.Errorf("invalid slot of %d bytes inside a layer: want %d", len(plain)-TagSize,
			o.SlotSize(o.context.Hop+1))
	}
	return [TagSize]byte(plain), plain[TagSize:], nil
}

// OpenMessage opens a slot at the verifier. It returns the tag, by which the verifier recognizes a replay, and the
// message.
func (o *Opener) OpenMessage(lane int, slot []byte) (tag [TagSize]byte, m task.Message, err error) {
	plain, err := o.sealed.open(aad(lane, kindSlot), slot)
	if err != nil {
		return tag, m, err
	}
	if len(plain) != TagSize+1+int(o.task.Slots.MessageBytes) {
		return tag, m, fmt.Errorf("invalid message of %d bytes: want %d", len(plain)-TagSize-1,
			o.task.Slots.MessageBytes)
	}
	kind, body := plain[TagSize], plain[TagSize+1:]
	if kind > slotMessage || kind == slotCover && !allZero(body) {
		return tag, m, fmt.Errorf("invalid slot kind %d", kind)
	}
	return [TagSize]byte(plain), task.Message{Cover: kind == slotCover, Body: body}, nil
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
