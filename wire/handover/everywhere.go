package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Everywhere is a stream as all its relays serve it.
type Everywhere struct {
	*Served         // The longest that any of them serves, and the statements of the newest era.
	Hop     int     // Who serves that.
	Least   int     // How many tasks of it all have that serve the stream.
	Missing []error // What was wrong with relays that serve none, by hop; nil for others.
	all     []*Served
}

// StreamEverywhere fetches a stream from every relay. It is an error where none serves it, and where two serve
// different tasks at a position: positions are taken for good, so nothing mends that.
func (c *Client) StreamEverywhere(ctx context.Context, root *taskfile.Open, trust taskfile.Trust) (*Everywhere, error) {
	all := make([]*Served, len(root.Relays))
	e := &Everywhere{Served: &Served{Tasks: []*taskfile.Open{root}}, Hop: -1, Missing: make([]error, len(all))}
	for hop := range all {
		newest := e.Tasks[len(e.Tasks)-1].Task
		all[hop], e.Missing[hop] = c.StreamAt(ctx, root, newest, hop, trust)
		if e.Missing[hop] != nil {
			continue
		}
		if err := e.fork(all[hop], hop); err != nil {
			return nil, err
		}
		if e.Hop < 0 || len(all[hop].Tasks) > len(e.Tasks) {
			e.Served, e.Hop = all[hop], hop
		}
	}
	if e.Hop < 0 {
		return nil, errors.Join(e.Missing...)
	}
	longest := *e.Served
	e.Served, e.Least, e.all = &longest, len(longest.Tasks), all
	for hop, served := range all {
		if e.Missing[hop] == nil {
			e.Least = min(e.Least, len(served.Tasks))
		}
		if later(served.Authority, e.Authority) {
			e.Statements, e.Authority = served.Statements, served.Authority
		}
	}
	return e, nil
}

// fork is an error where the relay at a hop serves another task at a position than one before it.
func (e *Everywhere) fork(s *Served, hop int) error {
	for i := range min(len(s.Tasks), len(e.Tasks)) {
		if a, b := e.Tasks[i].ID, s.Tasks[i].ID; a != b {
			return fmt.Errorf("relay %s has task %s at position %d of the stream, where another has %s: "+
				"no statement mends that, begin another stream", e.Tasks[0].Relays[hop].URL, b, i, a)
		}
	}
	return nil
}

// later says whether a decides after b.
func later(a, b taskfile.Authority) bool {
	return a.Era > b.Era || a.Era == b.Era && a.Number > b.Number
}

// Agreed is an error unless every relay serves the same tasks and statements: an owner's statement names the newest
// task and follows the newest statement, and a relay that lacks either refuses it.
func (e *Everywhere) Agreed() error {
	if err := errors.Join(e.Missing...); err != nil {
		return err
	}
	last := e.Tasks[len(e.Tasks)-1]
	for hop, served := range e.all {
		url := last.Relays[hop].URL
		if len(served.Tasks) < len(e.Tasks) {
			return invalid.Field("stream", fmt.Sprintf("relay %s lacks position %d", url, last.Stream.Position),
				"the same tasks at all relays: run the 'task renew' that signed it again")
		}
		if served.Authority != e.Authority {
			return invalid.Field("stream", "relay "+url+" has other statements",
				"the same at all relays: run the 'task state' that signed the newest again")
		}
	}
	return nil
}
