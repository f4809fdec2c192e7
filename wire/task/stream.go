package task

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// StreamPosition is a task's position in a stream: a series of tasks of one owner, whose key is in the bundle. The
// tasks of a stream differ only in position, previous task's id, start and count of epochs, key lists, and the parts
// that Allow names.
type StreamPosition struct {
	Name      string     // 1 to 64 printable ASCII characters.
	Position  uint64     // 0 for the first task. Below 2³².
	Before    ID         // The id of the task at the previous position; zero at position 0.
	Allow     []string   // What later tasks may change: names from [StreamPosition.Changeable], ascending, each once.
	Rotations []Rotation // Replaced keys of parties since the first task, in order of replacement.
}

// Rotation is a party's statement that from now on another key signs for it in a stream. The party is a relay, the
// verifier or the issuer. The old key's signatures for earlier tasks stay valid.
type Rotation struct {
	Old, New  SignKey
	Signature [64]byte // By the old key; package taskfile makes and checks it.
}

// maxPosition is the largest position in a stream.
const maxPosition = 1<<32 - 1

// maxRotations is the largest number of rotations in a task.
const maxRotations = 64

// Changeable returns the parts of a task that an owner may let later tasks of the stream change, in ascending order, by
// their names in the JSON form. The stream's name and Allow itself are never in it: otherwise a task could allow the
// next task everything.
func (*StreamPosition) Changeable() []string { return append([]string(nil), changeable...) }

var changeable = []string{
	"batch.honest", "batch.min", "batch.size",
	"claim.assumption", "claim.delta", "claim.epsilon", "claim.total",
	"clients.issuer.signKey", "clients.issuer.url", "clients.kind", "clients.origins", "clients.quota",
	"epochs.length",
	"input.bins", "input.clip", "input.labels", "input.range",
	"kem", "name", "noise", "params", "protocol", "query",
	"relays.signKey", "relays.url",
	"rule",
	"slots.average", "slots.lanes", "slots.messageBytes", "slots.padding", "slots.perLane",
	"verifier.signKey", "verifier.url",
}

func (w *writer) stream(s *StreamPosition) {
	if s == nil {
		w.array(0)
		return
	}
	if len(s.Rotations) == 0 {
		w.array(4)
	} else {
		w.array(5)
	}
	w.str(s.Name)
	w.uint(s.Position)
	if s.Position == 0 {
		w.big(0xc4, 0, 1)
	} else {
		w.bytes32(s.Before[:])
	}
	w.list(s.Allow)
	if len(s.Rotations) > 0 {
		w.rotations(s.Rotations)
	}
}

// rollSize is the size in bytes of an encoded rotation: old key, new key, signature.
const rollSize = 32 + 32 + 64

func (w *writer) rotations(rotations []Rotation) {
	w.array(len(rotations))
	for i := range rotations {
		w.big(0xc4, rollSize, 1)
		for _, part := range [][]byte{rotations[i].Old[:], rotations[i].New[:], rotations[i].Signature[:]} {
			w.out = append(w.out, part...)
		}
	}
}

func (r *reader) rotations() (rotations []Rotation) {
	n := r.arrayUpTo(maxRotations)
	if n == 0 {
		r.fail("want no rotations to be absent")
	}
	for ; n > 0 && r.err == nil; n-- {
		raw := r.take(2 + rollSize)
		if len(raw) != 2+rollSize || raw[0] != 0xc4 || raw[1] != rollSize {
			r.fail("want a rotation")
			break
		}
		rotations = append(rotations, Rotation{SignKey(raw[2:34]), SignKey(raw[34:66]), [64]byte(raw[66:])})
	}
	return rotations
}

func (r *reader) stream() *StreamPosition {
	parts := r.arrayUpTo(5)
	if parts != 0 && parts < 4 {
		r.fail("want an array with 0, 4 or 5 elements")
	}
	if parts == 0 || r.err != nil {
		return nil
	}
	s := &StreamPosition{Name: r.str(), Position: r.uint()}
	if s.Position > 0 {
		r.bytes32(s.Before[:])
	} else if head := r.take(2); r.err == nil && (head[0] != 0xc4 || head[1] != 0) {
		r.fail("want no bytes: nothing stands before position 0")
	}
	s.Allow = r.list(len(changeable))
	if parts == 5 {
		s.Rotations = r.rotations()
	}
	return s
}

func (t *Task) validateStream() error {
	s := t.Stream
	if s == nil {
		return nil
	}
	if !isName(s.Name) {
		return invalid.Field("stream.name", invalid.Quote(s.Name), "1 to 64 printable ASCII characters")
	}
	if err := inRange("stream.position", s.Position, 0, maxPosition); err != nil {
		return err
	}
	if (s.Position == 0) != (s.Before == ID{}) {
		return invalid.Field("stream.before", s.Before.String(), "the id of the task before, and none at position 0")
	}
	for i, name := range s.Allow {
		if !oneOf(name, changeable...) || i > 0 && s.Allow[i-1] >= name {
			return invalid.Field("stream.allow", invalid.Quote(name),
				"names of parts that may change, in ascending order, each once")
		}
	}
	if n := len(s.Rotations); n > maxRotations || n > 0 && s.Position == 0 || !s.rotationsAreInOrder() {
		return invalid.Field("stream.rotations", strconv.Itoa(n), "at most "+strconv.Itoa(maxRotations)+
			", none at position 0, each key replaced once and by a fresh one")
	}
	return nil
}

// rotationsAreInOrder reports whether each key is replaced at most once, and always by a key that was not used before.
func (s *StreamPosition) rotationsAreInOrder() bool {
	for i := range s.Rotations {
		rotation := &s.Rotations[i]
		if rotation.New.IsZero() || rotation.New == rotation.Old {
			return false
		}
		for j := range i {
			before := &s.Rotations[j]
			if rotation.New == before.Old || rotation.New == before.New || rotation.Old == before.Old {
				return false
			}
		}
	}
	return true
}

// origin returns the first key of a party that now has this key: the key before all rotations.
func (s *StreamPosition) origin(key SignKey) SignKey {
	for i := len(s.Rotations) - 1; i >= 0; i-- {
		if s.Rotations[i].New == key {
			key = s.Rotations[i].Old
		}
	}
	return key
}

// Now returns the current key of a party that once had this key.
func (s *StreamPosition) Now(key SignKey) SignKey {
	for _, rotation := range s.Rotations {
		if rotation.Old == key {
			key = rotation.New
		}
	}
	return key
}

// hasReplaced reports whether a party of the task still has a key that a rotation replaced.
func (t *Task) hasReplaced() bool {
	if t.Stream == nil {
		return false
	}
	for i := range t.Stream.Rotations {
		old := t.Stream.Rotations[i].Old
		for hop := range t.VerifierHop() + 1 {
			if t.Party(hop).SignKey == old {
				return true
			}
		}
		if t.Clients.Issuer.SignKey == old {
			return true
		}
	}
	return false
}

// unrolled returns a copy of the task in which parties have root's keys again, if they differ only by rotations, or if
// a relay was replaced and that is permitted. Replacing a relay is permitted if root's Allow names relays.signKey. In
// addition, the page's list of changes must name it, or the new relay must be one of the page's candidates.
func (t *Task) unrolled(root *Task, page []string, candidates []SignKey) *Task {
	out := *t
	out.Relays = append([]Party{}, t.Relays...)
	out.Verifier.SignKey = t.Stream.origin(t.Verifier.SignKey)
	out.Clients.Issuer.SignKey = t.Stream.origin(t.Clients.Issuer.SignKey)
	may := oneOf("relays.signKey", root.Stream.Allow...)
	for i := range out.Relays {
		key := t.Stream.origin(t.Relays[i].SignKey)
		out.Relays[i].SignKey = key
		if may && i < len(root.Relays) && key != root.Relays[i].SignKey &&
			(oneOf("relays.signKey", page...) || isKey(key, candidates)) {
			out.Relays[i] = root.Relays[i]
		}
	}
	return &out
}

func isKey(key SignKey, keys []SignKey) bool {
	for _, k := range keys {
		if k == key {
			return true
		}
	}
	return false
}

// CheckSuccessor returns nil if next may follow the task before in the stream that begins with root. Otherwise its
// error names the part that is wrong. id is the id of before. The caller has accepted root and before; both may be the
// same task. CheckSuccessor compares every part with root, never with before: so one allowed change does not allow
// others. A changeable part may differ if both root's Allow and page, the list of the checking party, name it. A
// relay may be replaced if root's Allow names relays.signKey and the new relay's first key is among the page's
// candidates. The caller has checked that the stream's owner signed next, and the signatures of its rotations.
// CheckSuccessor does not check the privacy losses of a changed task.
func (root *Task) CheckSuccessor(before *Task, id ID, next *Task, page []string, candidates []SignKey) error {
	if err := checkPlace(before, id, next); err != nil {
		return err
	}
	if root.Stream == nil || root.Stream.Position != 0 {
		return invalid.Field("stream.position", "a root that is not at position 0", "the first task of a stream")
	}
	frozen := root.shared()
	for i, part := range next.unrolled(root, page, candidates).shared() {
		if part.form == frozen[i].form ||
			oneOf(part.name, changeable...) && oneOf(part.name, root.Stream.Allow...) && oneOf(part.name, page...) {
			continue
		}
		return invalid.Field(part.name, "not the first task's",
			"the same in the whole stream, unless both the first task and the page allow it to change")
	}
	return nil
}

// checkPlace checks that next has the position after before, and that its epochs begin when those of before are over.
func checkPlace(before *Task, id ID, next *Task) error {
	switch {
	case before.Stream == nil:
		return invalid.Field("stream", "a task before that is in none", "a task in the stream")
	case next.Stream == nil:
		return invalid.Field("stream", "none", "the stream of the task before")
	case next.Stream.Position != before.Stream.Position+1:
		return invalid.Field("stream.position", strconv.FormatUint(next.Stream.Position, 10),
			strconv.FormatUint(before.Stream.Position+1, 10)+", after the task before")
	case next.Stream.Before != id:
		return invalid.Field("stream.before", next.Stream.Before.String(), id.String()+", the task before")
	}
	for i, rotation := range before.Stream.Rotations {
		if i >= len(next.Stream.Rotations) || next.Stream.Rotations[i] != rotation {
			return invalid.Field("stream.rotations", "others than in the task before", "the same, and new ones after them")
		}
	}
	if !before.rotations(next.Stream.Rotations[len(before.Stream.Rotations):]) {
		return invalid.Field("stream.rotations", "one of a key that is no party's", "those of parties of the task before")
	}
	if over := before.Epochs.Over(); next.Epochs.Start < over {
		return invalid.Field("epochs.start", strconv.FormatUint(next.Epochs.Start, 10),
			"at least "+strconv.FormatUint(over, 10)+", when the task before is over")
	}
	return nil
}

// rotations reports whether each new rotation, in order, replaces a key that one of the task's parties has by then.
// Otherwise a thief of the owner's key could fill the list of rotations, or use up a candidate's key, with the thief's
// own keys.
func (t *Task) rotations(fresh []Rotation) bool {
	keys := []SignKey{t.Clients.Issuer.SignKey}
	for hop := range t.VerifierHop() + 1 {
		keys = append(keys, t.Party(hop).SignKey)
	}
	for i := range fresh {
		if fresh[i].Old.IsZero() || !isKey(fresh[i].Old, keys) { // a zero key means that the task has no issuer
			return false
		}
		keys = append(keys, fresh[i].New)
	}
	return true
}

// part is one part of a task that is the same in all tasks of a stream, unless it may change.
type part struct {
	name string // Name from changeable, or of a part that never changes.
	form string // Encoding of the part: equal parts have equal forms, and different parts different forms.
}

// shared returns all parts that must be equal in a stream's tasks unless they may change. It omits the position, the
// previous task's id, the start and count of epochs, and the key lists.
func (t *Task) shared() []part {
	parts := []part{
		{"stream.name", t.Stream.Name},
		{"stream.allow", texts(t.Stream.Allow...)},
		{"relays", numbers(uint64(len(t.Relays)))},
		{"name", t.Name},
		{"query", string(t.Query)},
		{"protocol", t.Protocol},
		{"rule", t.Rule},
		{"params", encoded(func(w *writer) { w.params(t.Params) })},
		{"input.range", texts(t.Input.Lo.String(), t.Input.Hi.String())},
		{"input.bins", numbers(t.Input.Bins)},
		{"input.labels", numbers(flag(t.Input.Labels))},
		{"input.clip", numbers(flag(t.Input.Clip))},
		{"claim.epsilon", t.Claim.Epsilon.text},
		{"claim.delta", t.Claim.Delta.text},
		{"claim.total", texts(t.Claim.Total.Epsilon.text, t.Claim.Total.Delta.text)},
		{"claim.assumption", t.Claim.Assumption.String()},
		{"batch.size", numbers(t.Batch.Size)},
		{"batch.honest", t.Batch.Honest.String()},
		{"batch.min", numbers(t.Batch.Min)},
		{"slots.padding", string(t.Slots.Padding)},
		{"slots.lanes", numbers(t.Slots.Lanes)},
		{"slots.perLane", numbers(t.Slots.PerLane)},
		{"slots.messageBytes", numbers(t.Slots.MessageBytes)},
		{"slots.average", numbers(t.Slots.Average)},
		{"epochs.length", numbers(uint64(t.Epochs.Length))},
		{"pace", t.Epochs.Pace.String()}, // Before the cap, which a pace needs.
		{"cap", t.Epochs.Cap.String()},
		{"events", numbers(t.Epochs.Events.Most, t.Epochs.Events.Window, t.Epochs.Events.Default)},
		{"clients.kind", string(t.Clients.Kind)},
		{"clients.quota", numbers(t.Clients.Quota)},
		{"clients.origins", texts(t.Clients.Origins...)},
		{"kem", string(t.KEM)},
		{"noise", encoded(func(w *writer) { w.noise(t.Noise) })},
	}
	parts = append(parts, sharedOf("clients.issuer", t.Clients.Issuer)...)
	parts = append(parts, sharedOf("relays", t.Relays...)...)
	return append(parts, sharedOf("verifier", t.Verifier)...)
}

// sharedOf returns two parts: the addresses of parties, and their signing keys, both in order.
func sharedOf(field string, parties ...Party) []part {
	var urls, keys []string
	for _, p := range parties {
		urls, keys = append(urls, p.URL), append(keys, string(p.SignKey[:]))
	}
	return []part{{field + ".url", texts(urls...)}, {field + ".signKey", texts(keys...)}}
}

func encoded(write func(*writer)) string {
	w := writer{}
	write(&w)
	return string(w.out)
}

func texts(s ...string) string { return encoded(func(w *writer) { w.strs(s...) }) }

func numbers(v ...uint64) string { return encoded(func(w *writer) { w.uints(v...) }) }
