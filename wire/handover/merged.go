package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// StreamRelay is where a relay of a stream is asked: the address at a hop of one of its tasks.
type StreamRelay struct {
	Task *task.Task
	Hop  int
}

// URL returns the relay's address.
func (p StreamRelay) URL() string { return p.Task.Relays[p.Hop].URL }

// relaysOf returns the relays of a task.
func relaysOf(t *task.Task) (out []StreamRelay) {
	for hop := range t.Relays {
		out = append(out, StreamRelay{t, hop})
	}
	return out
}

// answer is what a relay serves, or why it serves nothing. Its authority is known wherever that could be read.
type answer struct {
	StreamRelay
	*RelayStream
	err error
}

// askAll asks the relays at these places, and then those that the newest tasks found list, until all of them have been
// asked: a relay's address may have changed, and another may have taken its place. Each address is asked once.
func (c *Client) askAll(ctx context.Context, root *taskfile.Open, places []StreamRelay, trust taskfile.Trust) (all []answer) {
	asked := map[string]bool{}
	for i := 0; i < len(places); i++ {
		p := places[i]
		if asked[p.URL()] {
			continue
		}
		asked[p.URL()] = true
		served, err := c.StreamAt(ctx, root, p.Task, p.Hop, trust)
		all = append(all, answer{p, served, err})
		if err == nil {
			places = append(places, relaysOf(served.newest().Task)...)
		}
	}
	return all
}

// bestOf returns the answer of the newest era; of those one by a relay that its newest task lists, with the newest
// statements, and the longest; nil where there is none. So neither a relay that serves less than there is decides, nor
// what one that has given up its place took from an owner's old key since.
func bestOf(all []answer) (best *answer) {
	for i := range all {
		if a := &all[i]; a.err == nil && (best == nil || a.outranks(best)) {
			best = a
		}
	}
	return best
}

// outranks says whether an answer is to be believed before another.
func (a *answer) outranks(b *answer) bool {
	return cmp.Or(cmp.Compare(b.Authority.Era, a.Authority.Era), cmp.Compare(b.listed(), a.listed()),
		cmp.Compare(b.Authority.Number, a.Authority.Number), cmp.Compare(len(b.Tasks), len(a.Tasks))) < 0
}

// listed is 1 where the newest task that a relay serves lists the relay, else 0.
func (a *answer) listed() int {
	for _, relay := range a.newest().Relays {
		if relay.URL == a.URL() {
			return 1
		}
	}
	return 0
}

// newest returns the newest task.
func (s *RelayStream) newest() *taskfile.Open { return s.Tasks[len(s.Tasks)-1] }

// known returns the places at which a stream is looked for first: the relays of its first task and, unless that is
// nil, of a later one.
func known(root, newest *taskfile.Open) []StreamRelay {
	places := relaysOf(root.Task)
	if newest != nil {
		places = append(places, relaysOf(newest.Task)...)
	}
	return places
}

// failed returns why nobody answered.
func failed(all []answer) error {
	var errs []error
	for _, a := range all {
		errs = append(errs, a.err)
	}
	return errors.Join(errs...)
}

// MergedStream is a stream as all relays of its newest task serve it.
type MergedStream struct {
	*RelayStream               // The longest that any of them serves, and the statements of the newest era.
	From         StreamRelay   // Who serves that.
	Least        int           // How many tasks of it all have that serve the stream.
	Missing      []error       // What was wrong with relays that serve none, by hop; nil for others.
	Retired      []StreamRelay // Relays of tasks before that are none of the newest: clients may look there.
	all          []answer
}

// FetchMergedStream fetches a stream from every relay of its newest task, which it finds by the relays of the first one
// and, unless that is nil, of a later task. It is an error where none serves it, and where two serve different tasks at
// a position: positions are taken for good, so nothing mends that. What a relay serves that is none of the newest task
// counts only where nobody else serves more, or knows of the newest era.
func (c *Client) FetchMergedStream(ctx context.Context, root, newest *taskfile.Open, trust taskfile.Trust) (
	*MergedStream, error) {
	all := c.askAll(ctx, root, known(root, newest), trust)
	best := bestOf(all)
	if best == nil {
		return nil, failed(all)
	}
	e := &MergedStream{RelayStream: &RelayStream{best.Tasks, best.Statements, best.Authority}, From: best.StreamRelay}
	for { // A relay without the newest statements may have a task that the others lack.
		e.all = current(all, e.newest().Task)
		longer, err := e.longer()
		if err != nil {
			return nil, err
		}
		if longer == nil {
			break
		}
		e.Tasks, e.From = longer.Tasks, longer.StreamRelay
	}
	e.sum(all)
	return e, nil
}

// current returns the answers of a task's relays, by hop.
func current(all []answer, t *task.Task) []answer {
	out := make([]answer, len(t.Relays))
	for hop, relay := range t.Relays {
		for _, a := range all { // all relays of every newest task were asked
			if a.URL() == relay.URL {
				out[hop] = a
			}
		}
	}
	return out
}

// longer returns an answer that goes on behind what is known, nil where none does. It is an error where one has
// another task at a position.
func (e *MergedStream) longer() (longer *answer, err error) {
	for hop := range e.all {
		a := &e.all[hop]
		if a.err != nil {
			continue
		}
		if err := e.fork(a); err != nil {
			return nil, err
		}
		if len(a.Tasks) > len(e.Tasks) {
			longer = a
		}
	}
	return longer, nil
}

// sum says what all answers come to.
func (e *MergedStream) sum(all []answer) {
	e.Least, e.Missing = len(e.Tasks), make([]error, len(e.all))
	listed := map[string]bool{}
	for hop, a := range e.all {
		listed[a.URL()], e.Missing[hop] = true, a.err
		if a.err == nil {
			e.Least = min(e.Least, len(a.Tasks))
		}
		if later(a.Authority, e.Authority) {
			e.Statements, e.Authority = a.Statements, a.Authority
		}
	}
	for _, a := range all {
		if listed[a.URL()] {
			continue
		}
		e.Retired = append(e.Retired, a.StreamRelay)
		if a.Authority.Era > e.Authority.Era { // only the recovery key begins one
			e.Statements, e.Authority = a.Statements, a.Authority
		}
	}
}

// fork is an error where a relay serves another task at a position than is known.
func (e *MergedStream) fork(s *answer) error {
	for i := range min(len(s.Tasks), len(e.Tasks)) {
		if a, b := e.Tasks[i].ID, s.Tasks[i].ID; a != b {
			return fmt.Errorf("relay %s has task %s at position %d of the stream, where another has %s: "+
				"no statement mends that, begin another stream", s.URL(), b, i, a)
		}
	}
	return nil
}

// later says whether a decides after b.
func later(a, b taskfile.Authority) bool {
	return a.Era > b.Era || a.Era == b.Era && a.Number > b.Number
}

// Agreed is an error unless every relay of the newest task serves the same tasks and statements: an owner's statement
// names the newest task and follows the newest statement, and a relay that lacks either refuses it.
func (e *MergedStream) Agreed() error {
	if err := errors.Join(e.Missing...); err != nil {
		return err
	}
	for _, served := range e.all {
		if len(served.Tasks) < len(e.Tasks) {
			return invalid.Field("stream", fmt.Sprintf("relay %s lacks position %d", served.URL(),
				e.newest().Stream.Position),
				"the same tasks at all relays: run the 'task renew' that signed it again")
		}
		if served.Authority != e.Authority {
			return invalid.Field("stream", "relay "+served.URL()+" has other statements",
				"the same at all relays: run the 'task state' that signed the newest again")
		}
	}
	return nil
}
