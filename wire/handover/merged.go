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

// StreamRelay is a relay that may serve a stream: the relay at one hop of one of the stream's tasks.
type StreamRelay struct {
	Task *task.Task
	Hop  int
}

// URL returns the relay's address in Task.
func (p StreamRelay) URL() string { return p.Task.Relays[p.Hop].URL }

func relaysOf(t *task.Task) (out []StreamRelay) {
	for hop := range t.Relays {
		out = append(out, StreamRelay{t, hop})
	}
	return out
}

// streamAnswer is one relay's answer to a request for a stream: the stream, or an error. If the answer could be parsed,
// its Authority is set even with an error.
type streamAnswer struct {
	StreamRelay
	*RelayStream
	err error
}

// askAll asks the given relays for the stream, and then the relays that the newest task in each answer names. It stops
// when no new address appears. This way it finds relays that have moved to another address or have replaced another
// relay. It asks each address once.
func (c *Requester) askAll(ctx context.Context, root *taskfile.Open, relays []StreamRelay, trust taskfile.Trust) (
	all []streamAnswer) {
	asked := map[string]bool{}
	for i := 0; i < len(relays); i++ {
		p := relays[i]
		if asked[p.URL()] {
			continue
		}
		asked[p.URL()] = true
		served, err := c.StreamAt(ctx, root, p.Task, p.Hop, trust)
		all = append(all, streamAnswer{p, served, err})
		if err == nil {
			relays = append(relays, relaysOf(served.newest().Task)...)
		}
	}
	return all
}

// bestOf returns the best answer without an error, or nil. Its criteria, in order: the newest era; a relay that its own
// newest task lists; the most statements; the most tasks. So a relay with an outdated stream does not decide. Nor does
// a replaced relay that still accepts tasks signed with the owner's old key.
func bestOf(all []streamAnswer) (best *streamAnswer) {
	for i := range all {
		if a := &all[i]; a.err == nil && (best == nil || a.outranks(best)) {
			best = a
		}
	}
	return best
}

func (a *streamAnswer) outranks(b *streamAnswer) bool {
	return cmp.Or(cmp.Compare(b.Authority.Era, a.Authority.Era), cmp.Compare(b.listed(), a.listed()),
		cmp.Compare(b.Authority.Number, a.Authority.Number), cmp.Compare(len(b.Tasks), len(a.Tasks))) < 0
}

// listed returns 1 if the newest task that a relay serves lists this relay, otherwise 0.
func (a *streamAnswer) listed() int {
	for _, relay := range a.newest().Relays {
		if relay.URL == a.URL() {
			return 1
		}
	}
	return 0
}

func (s *RelayStream) newest() *taskfile.Open { return s.Tasks[len(s.Tasks)-1] }

// known returns the relays to ask first: those of the stream's first task, and those of the later task newest unless it
// is nil.
func known(root, newest *taskfile.Open) []StreamRelay {
	relays := relaysOf(root.Task)
	if newest != nil {
		relays = append(relays, relaysOf(newest.Task)...)
	}
	return relays
}

func failed(all []streamAnswer) error {
	var errs []error
	for _, a := range all {
		errs = append(errs, a.err)
	}
	return errors.Join(errs...)
}

// MergedStream combines what all relays of a stream's newest task serve.
type MergedStream struct {
	*RelayStream               // The longest stream of any relay, with the statements of the newest era.
	From         StreamRelay   // The relay that serves these tasks.
	Least        int           // How many tasks each answering relay has at least.
	Missing      []error       // By hop: why the relay does not serve the stream, or nil if it does.
	Retired      []StreamRelay // Relays that only earlier tasks list; clients may still ask them.
	all          []streamAnswer
}

// FetchMergedStream fetches a stream from every relay of its newest task. It finds these relays through the relays of
// the first task, and through the relays of a later task, newest, unless that is nil. It fails if no relay serves the
// stream. It also fails if two relays serve different tasks at one position: a position never changes, so nothing
// repairs this. A relay that the newest task does not list counts only if no listed relay serves more tasks or a newer
// era.
func (c *Requester) FetchMergedStream(ctx context.Context, root, newest *taskfile.Open, trust taskfile.Trust) (
	*MergedStream, error) {
	all := c.askAll(ctx, root, known(root, newest), trust)
	best := bestOf(all)
	if best == nil {
		return nil, failed(all)
	}
	e := &MergedStream{RelayStream: &RelayStream{best.Tasks, best.Statements, best.Authority}, From: best.StreamRelay}
	for { // A relay that lacks the newest statements may still have a task that the others lack.
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
func current(all []streamAnswer, t *task.Task) []streamAnswer {
	out := make([]streamAnswer, len(t.Relays))
	for hop, relay := range t.Relays {
		for _, a := range all { // contains all relays of t: askAll asked the relays of every newest task
			if a.URL() == relay.URL {
				out[hop] = a
			}
		}
	}
	return out
}

// longer returns an answer with more tasks than e, or nil. It returns an error if an answer has a different task than e
// at some position.
func (e *MergedStream) longer() (longer *streamAnswer, err error) {
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

// sum computes the fields of e from all answers.
func (e *MergedStream) sum(all []streamAnswer) {
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
		if a.Authority.Era > e.Authority.Era { // any relay counts: only the recovery key begins an era
			e.Statements, e.Authority = a.Statements, a.Authority
		}
	}
}

// fork returns an error if an answer has a different task than e at some position.
func (e *MergedStream) fork(s *streamAnswer) error {
	for i := range min(len(s.Tasks), len(e.Tasks)) {
		if a, b := e.Tasks[i].ID, s.Tasks[i].ID; a != b {
			return fmt.Errorf("relay %s has task %s at position %d of the stream, where another has %s: "+
				"no statement can repair this, begin another stream", s.URL(), b, i, a)
		}
	}
	return nil
}

// later reports whether a has a newer era than b, or the same era and more statements.
func later(a, b taskfile.Authority) bool {
	return a.Era > b.Era || a.Era == b.Era && a.Number > b.Number
}

// Agreed returns an error unless every relay of the newest task serves the same tasks and statements. An owner calls it
// before a new statement: the statement names the newest task and follows the newest statement, and a relay that lacks
// either would refuse it.
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
				"the same at all relays: run the command that signed the newest statement again")
		}
	}
	return nil
}
