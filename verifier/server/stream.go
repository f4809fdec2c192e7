package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// hostedStream is a stream whose first task is configured. The relays pass on later tasks, which can change only what
// the first task allows. It implements [taskstream.Server].
type hostedStream struct {
	*taskstream.Folder
	server *Server
	config TaskConfig        // configuration of the first task, with Successors set
	served []*hostedTask     // the stream's hosted tasks, by position
	pull   func(*hostedTask) // starts to pull the batches of a task that joined
}

// loadStream loads the stored later tasks of the stream that begins with first.
func (s *Server) loadStream(c TaskConfig, raw []byte, first *hostedTask) error {
	in := first.open.Stream
	switch {
	case in == nil && c.Recovery != "":
		return invalid.Field("recovery", c.Recovery, "none, for a task that is in no stream")
	case in == nil && c.Successors != "":
		return invalid.Field("successors", c.Successors, "none, for a task that is in no stream")
	case in == nil || in.Position > 0 && c.Successors == "":
		return nil // a later task may be configured by itself
	case c.Successors == "":
		c.Successors = filepath.Join(s.cfg.successors(), first.open.ID.String())
	}
	recovery, err := taskfile.ParseRecovery(c.Recovery)
	if err != nil {
		return err
	}
	folder, err := taskstream.Open(c.Successors, raw, recovery)
	if err != nil {
		return err
	}
	l := &hostedStream{Folder: folder, server: s, config: c, served: []*hostedTask{first}}
	s.streams = append(s.streams, l)
	for _, t := range l.Tasks()[1:] {
		next := s.find(t.ID) // the task may also be configured by itself
		if next == nil {
			if next, err = l.load(t); err != nil {
				return fmt.Errorf("position %d of %s: %w", t.Stream.Position, c.File, err)
			}
			s.add(next, first)
		}
		l.served = append(l.served, next)
	}
	return nil
}

// load makes the verifier of a later task in the stream.
func (l *hostedStream) load(t *taskstream.StreamTask) (*hostedTask, error) {
	next, err := l.server.loadTask(t.Open, l.Keys(t.Task), l.config)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the owner signed a task, but this verifier has no keys for it in %s: %w",
			l.config.Successors, err)
	}
	if err != nil {
		return nil, err
	}
	next.charging.Root = l.served[0].open.ID
	return next, nil
}

// checkBudgets finds the ledger of each task. It refuses two configured tasks of one ledger with different budgets: the
// task with the larger budget, or without one, could exceed the other's.
func (s *Server) checkBudgets() error {
	firsts := map[string]*hostedTask{}
	for _, t := range s.tasks {
		if err := s.findRoot(t); err != nil {
			return fmt.Errorf("%s: %w", t.config.File, err)
		}
		name, err := ledger.Name(t.open, t.charging.Folder, t.charging.Root)
		if err != nil {
			return fmt.Errorf("%s: %w", t.config.File, err)
		}
		t.charging.Existing = s.isLater(t) && !t.config.NewLedger
		first := firsts[name]
		if first == nil {
			firsts[name] = t
			continue
		}
		if one, other := first.config.budgetText(), t.config.budgetText(); one != other {
			return invalid.Field("total_epsilon", other+" for "+t.config.File, one+", as for "+first.config.File+
				", whose ledger is the same: give all tasks of a stream one budget")
		}
	}
	return nil
}

// isLater reports whether a task is a later task of a stream whose first task is not hosted here. In that case, results
// of the stream may have been published elsewhere.
func (s *Server) isLater(t *hostedTask) bool {
	return t.open.Stream != nil && t.open.Stream.Position > 0 && s.find(t.charging.Root) == nil
}

// findRoot finds the first task of a task's stream, among the hosted tasks or from the configuration.
func (s *Server) findRoot(t *hostedTask) error {
	at := t.open
	for at.Stream != nil {
		before := s.find(at.Stream.Before)
		if before == nil {
			break
		}
		at = before.open
	}
	t.charging.Root = ledger.First(at)
	if t.config.Root == "" {
		return nil
	}
	root, err := taskfile.LoadBundle(t.config.Root)
	if err != nil {
		return err
	}
	known := t.charging.Root
	if t.charging.Root, err = ledger.Root(t.open, root); err == nil && known != (task.ID{}) && known != root.ID {
		err = invalid.Field("root", root.ID.String(), known.String()+", the first task of the stream")
	}
	return err
}

// followEvery is the number of pull intervals between two polls for later tasks of a stream.
const followEvery = 6

// follow hosts later tasks of all streams when they appear, and pulls their batches, until ctx ends.
func (s *Server) follow(ctx context.Context, pulling *sync.WaitGroup) {
	f := taskstream.Follower{Client: s.client, Clock: s.cfg.Clock, Every: followEvery * s.cfg.PullInterval,
		Log: s.cfg.Log}
	for _, l := range s.streams {
		l.pull = func(t *hostedTask) { pulling.Go(func() { t.puller.Run(ctx, s.cfg.PullInterval) }) }
		f.Streams = append(f.Streams, &taskstream.Followed{Folder: l.Folder, Path: l.config.Successors,
			Name: l.served[0].name(), Server: l})
	}
	f.Run(ctx)
}

// Prepare returns an error if the server cannot host a task.
func (l *hostedStream) Prepare(t *taskstream.StreamTask) error {
	if l.server.find(t.ID) != nil {
		return nil
	}
	_, err := l.load(t)
	return err
}

// Served returns the number of the stream's hosted tasks.
func (l *hostedStream) Served() int { return len(l.served) }

// Stuck sets the metric for a stream that cannot continue here; err is the reason, or nil.
func (l *hostedStream) Stuck(err error) {
	l.server.metrics.Set(metricStuck, service.Flag(err != nil).Value(), l.served[0].name())
}

// Serve hosts the next task of the stream.
func (l *hostedStream) Serve(t *taskstream.StreamTask) error {
	next := l.server.find(t.ID)
	if next == nil {
		var err error
		if next, err = l.join(t); err != nil {
			return err
		}
		l.pull(next)
	}
	l.served = append(l.served, next)
	endsLater(l.server.metrics, l)
	return nil
}

// join makes the verifier and puller of the next task, and adds the task.
func (l *hostedStream) join(t *taskstream.StreamTask) (*hostedTask, error) {
	s := l.server
	next, err := l.load(t)
	if err != nil {
		return nil, err
	}
	if err := s.openPuller(next); err != nil {
		return nil, err
	}
	s.add(next, l.served[0])
	beginTask(s.metrics, next)
	s.cfg.Log.Info("stream continued", "task", next.name(), "position", t.Stream.Position)
	return next, nil
}
