package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/internal/succession"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stream is a stream whose first task is in the configuration. What follows comes from its relays, and
// changes nothing that the first task does not allow.
type stream struct {
	*succession.Folder
	config TaskConfig // Of the first task, with the folder.
	served []*served  // By position.
	failed string     // Why it could not be followed when that was tried last.
}

// loadStream loads the successors that were taken, of a task that is the first of a stream.
func (s *Server) loadStream(c TaskConfig, raw []byte, first *served) error {
	place := first.open.Stream
	switch {
	case place == nil && c.Recovery != "":
		return invalid.Field("recovery", c.Recovery, "none, for a task that is in no stream")
	case place == nil && c.Successors != "":
		return invalid.Field("successors", c.Successors, "none, for a task that is in no stream")
	case place == nil || place.Position > 0 && c.Successors == "":
		return nil // a later task may be counted by itself
	case c.Successors == "":
		c.Successors = filepath.Join(s.cfg.Data, "successors", first.open.ID.String())
	}
	recovery, err := taskfile.ParseRecovery(c.Recovery)
	if err != nil {
		return err
	}
	folder, err := succession.Open(c.Successors, raw, recovery)
	if err != nil {
		return err
	}
	l := &stream{Folder: folder, config: c, served: []*served{first}}
	s.streams = append(s.streams, l)
	for _, t := range l.Tasks()[1:] {
		next := s.find(t.ID) // in the configuration, too
		if next == nil {
			if next, err = s.loadSuccessor(l, t); err != nil {
				return fmt.Errorf("position %d of %s: %w", t.Stream.Position, c.File, err)
			}
			s.add(next, first)
		}
		l.served = append(l.served, next)
	}
	return nil
}

// loadSuccessor makes the verifier of a task behind the first.
func (s *Server) loadSuccessor(l *stream, t *succession.Task) (*served, error) {
	next, err := s.loadTask(t.Open, l.Keys(t.Task), l.config)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the owner signed a task without this verifier's keys in %s: %w", l.config.Successors, err)
	}
	if err != nil {
		return nil, err
	}
	next.charging.Root = l.served[0].open.ID
	return next, nil
}

// checkBudgets finds the ledger of each task, and refuses two entries of one ledger with different budgets: whichever
// has the larger one, or none, would charge past the other's.
func (s *Server) checkBudgets() error {
	firsts := map[string]*served{}
	for _, t := range s.tasks {
		if err := s.findRoot(t); err != nil {
			return fmt.Errorf("%s: %w", t.config.File, err)
		}
		name, err := ledger.Name(t.open, t.charging.Folder, t.charging.Root)
		if err != nil {
			return fmt.Errorf("%s: %w", t.config.File, err)
		}
		t.charging.Existing = s.isLater(t) && !t.config.Begin
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

// isLater says whether a task is a later one of a stream whose first task is not served here: the stream may have been
// published elsewhere.
func (s *Server) isLater(t *served) bool {
	return t.open.Stream != nil && t.open.Stream.Position > 0 && s.find(t.charging.Root) == nil
}

// findRoot finds the first task of a task's stream: by the tasks that are served before it, or as it is configured.
func (s *Server) findRoot(t *served) error {
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
	told := t.charging.Root
	if t.charging.Root, err = ledger.Root(t.open, root); err == nil && told != (task.ID{}) && told != root.ID {
		err = invalid.Field("root", root.ID.String(), told.String()+", the first task of the stream")
	}
	return err
}

// followEvery is how many pull intervals pass between two looks at a stream.
const followEvery = 6

// followLoop takes up the successors of all streams as they come, and pulls their batches.
func (s *Server) followLoop(ctx context.Context, pulling *sync.WaitGroup) {
	for _, l := range s.streams {
		if err := durable.MakeFolder(l.config.Successors, 0o700); err != nil { // where the operator puts keys
			s.cfg.Log.Error("couldn't make the folder of successors", "error", err)
		}
	}
	for len(s.streams) > 0 {
		for _, l := range s.streams {
			joined, err := s.follow(ctx, l)
			for _, t := range joined {
				pulling.Go(func() { t.puller.Run(ctx, s.cfg.PullInterval) })
			}
			s.noteFollowed(ctx, l, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followEvery * s.cfg.PullInterval):
		}
	}
}

// noteFollowed says in the log, once, and in the metrics that a stream cannot go on here.
func (s *Server) noteFollowed(ctx context.Context, l *stream, err error) {
	if ctx.Err() != nil {
		return
	}
	s.metrics.Set(metricStuck, 0, l.served[0].name())
	if err == nil {
		l.failed = ""
		return
	}
	s.metrics.Set(metricStuck, 1, l.served[0].name())
	if l.failed != err.Error() {
		s.cfg.Log.Error("couldn't follow a stream; trying again", "task", l.served[0].name(), "error", err)
	}
	l.failed = err.Error()
}

// follow takes what is new of a stream, and begins to serve what was taken.
func (s *Server) follow(ctx context.Context, l *stream) (joined []*served, err error) {
	err = l.Follow(ctx, s.client, uint64(max(s.cfg.Clock().Unix(), 0)), func(t *succession.Task) error {
		if s.find(t.ID) != nil {
			return nil
		}
		_, err := s.loadSuccessor(l, t)
		return err
	})
	for _, t := range l.Tasks()[len(l.served):] {
		next := s.find(t.ID)
		if next == nil {
			var failed error
			if next, failed = s.join(l, t); failed != nil {
				return joined, errors.Join(err, failed)
			}
			joined = append(joined, next)
		}
		l.served = append(l.served, next)
		endsLater(s.metrics, l)
	}
	return joined, err
}

// join serves a task that was taken.
func (s *Server) join(l *stream, t *succession.Task) (*served, error) {
	next, err := s.loadSuccessor(l, t)
	if err != nil {
		return nil, err
	}
	if err := s.openPuller(next); err != nil {
		return nil, err
	}
	s.add(next, l.served[0])
	beginTask(s.metrics, next)
	s.cfg.Log.Info("a stream goes on", "task", next.name(), "position", t.Stream.Position)
	return next, nil
}
