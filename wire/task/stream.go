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
