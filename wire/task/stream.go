package task

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// Stream is a task's place in a line of tasks of one owner, whose key is that of the bundle. All of
// them are alike but in position, hash before, epochs' start and count and key lists, and in what
// Allow names.
type Stream struct {
	Name     string   // 1 to 64 printable ASCII characters.
	Position uint64   // 0 for the first task. Below 2³².
	Before   ID       // The task one position before; zero at position 0.
	Allow    []string // What a successor may change: names from [Changeable], ascending, each once.
}

// Changeable are the parts of a task that an owner may allow a successor in its stream to change, in
// ascending order, by their names in the JSON form. Never among them are the stream's name and what
// may change itself: a task could otherwise allow its successor everything.
var Changeable = []string{
	"batch.honest", "batch.min", "batch.size",
	"claim.assumption", "claim.delta", "claim.epsilon", "claim.total",
	"clients.issuer.signKey", "clients.issuer.url", "clients.kind", "clients.quota",
	"epochs.length",
	"input.bins", "input.clip", "input.labels", "input.range",
	"kem", "name", "noise", "params", "protocol", "query",
	"relays.signKey", "relays.url",
	"rule",
	"slots.lanes", "slots.messageBytes", "slots.padding", "slots.perLane",
	"verifier.signKey", "verifier.url",
}

func (w *writer) stream(s *Stream) {
	if s == nil {
		w.array(0)
		return
	}
	w.array(4)
	w.str(s.Name)
	w.uint(s.Position)
	if s.Position == 0 {
		w.big(0xc4, 0, 1)
	} else {
		w.bytes32(s.Before[:])
	}
	w.array(len(s.Allow))
	w.strs(s.Allow...)
}

func (r *reader) stream() *Stream {
	if !r.optional(4) {
		return nil
	}
	s := &Stream{Name: r.str(), Position: r.uint()}
	if s.Position > 0 {
		r.bytes32(s.Before[:])
	} else if head := r.take(2); r.err == nil && (head[0] != 0xc4 || head[1] != 0) {
		r.fail("want no bytes: nothing stands before position 0")
	}
	for n := r.arrayUpTo(len(Changeable)); n > 0 && r.err == nil; n-- {
		s.Allow = append(s.Allow, r.str())
	}
	return s
}

func (t *Task) validateStream() error {
	s := t.Stream
	if s == nil {
		return nil
	}
	if !isName(s.Name) {
		return invalid.Field("stream.name", strconv.Quote(s.Name), "1 to 64 printable ASCII characters")
	}
	if err := inRange("stream.position", s.Position, 0, 1<<32-1); err != nil {
		return err
	}
	if (s.Position == 0) != (s.Before == ID{}) {
		return invalid.Field("stream.before", s.Before.String(), "the id of the task before, and none at position 0")
	}
	for i, name := range s.Allow {
		if !oneOf(name, Changeable...) || i > 0 && s.Allow[i-1] >= name {
			return invalid.Field("stream.allow", strconv.Quote(name),
				"names of parts that may change, in ascending order, each once")
		}
	}
	return nil
}

// CheckSuccessor is an error that names the part, unless next may follow before, a task with this id, in
// the stream of which root is the first task. Both have been accepted; before may be root. Every part is
// held against root's, never against before's: what was allowed once is not thereby free. A part of
// [Changeable] may differ where both root's Allow and the page's name it. The caller has checked that the
// owner of root signed next. What the losses of a changed task are is not checked here.
func (root *Task) CheckSuccessor(before *Task, id ID, next *Task, page []string) error {
	if err := checkPlace(before, id, next); err != nil {
		return err
	}
	if root.Stream == nil || root.Stream.Position != 0 {
		return invalid.Field("stream.position", "a root that is not at position 0", "the first task of a stream")
	}
	frozen := root.shared()
	for i, part := range next.shared() {
		if part.form == frozen[i].form ||
			oneOf(part.name, Changeable...) && oneOf(part.name, root.Stream.Allow...) && oneOf(part.name, page...) {
			continue
		}
		return invalid.Field(part.name, "another than the first task's",
			"the same in the whole stream, unless both the first task and the page allow it to change")
	}
	return nil
}

// checkPlace checks that next stands behind before, and begins when it is over.
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
	if over := before.Epochs.Over(); next.Epochs.Start < over {
		return invalid.Field("epochs.start", strconv.FormatUint(next.Epochs.Start, 10),
			"at least "+strconv.FormatUint(over, 10)+", when the task before is over")
	}
	return nil
}

// part is a part of a task that a stream's tasks share.
type part struct {
	name string // As in Changeable, or that of a part that never changes.
	form string // Equal where the parts are.
}

// shared returns all that a stream's tasks share: everything but position, hash before, epochs' start and
// count, and key lists.
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
		{"epochs.length", numbers(t.Epochs.Length)},
		{"clients.kind", string(t.Clients.Kind)},
		{"clients.quota", numbers(t.Clients.Quota)},
		{"kem", string(t.KEM)},
		{"noise", encoded(func(w *writer) { w.noise(t.Noise) })},
	}
	parts = append(parts, sharedOf("clients.issuer", t.Clients.Issuer)...)
	parts = append(parts, sharedOf("relays", t.Relays...)...)
	return append(parts, sharedOf("verifier", t.Verifier)...)
}

// sharedOf returns the addresses and the keys of parties, in their order.
func sharedOf(field string, parties ...Party) []part {
	var urls, keys []string
	for _, p := range parties {
		urls, keys = append(urls, p.URL), append(keys, string(p.SignKey[:]))
	}
	return []part{{field + ".url", texts(urls...)}, {field + ".signKey", texts(keys...)}}
}

// encoded returns what a writer writes.
func encoded(write func(*writer)) string {
	w := writer{}
	write(&w)
	return string(w.out)
}

func texts(s ...string) string { return encoded(func(w *writer) { w.strs(s...) }) }

func numbers(v ...uint64) string { return encoded(func(w *writer) { w.uints(v...) }) }
