package issuer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/succession"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stream is a stream whose first task is in the configuration. What follows comes from its first relay, and
// changes nothing that the first task does not allow.
type stream struct {
	*succession.Folder
	path   string
	served []*served // By position.
	failed string    // Why it could not be followed when that was tried last.
}

// loadStream loads the successors that were taken, of a task that is the first of a stream.
func (i *Issuer) loadStream(c TaskConfig, raw []byte, first *served) error {
	place := first.Stream
	switch {
	case place == nil && c.Recovery != "":
		return invalid.Field("recovery", c.Recovery, "none, for a task that is in no stream")
	case c.Successors == "" && (place == nil || place.Position > 0):
		return nil // a later task may be served by itself
	case c.Successors == "":
		return invalid.Field("successors", `""`, "a folder, for the first task of a stream")
	}
	recovery, err := taskfile.ParseRecovery(c.Recovery)
	if err != nil {
		return err
	}
	folder, err := succession.Open(c.Successors, raw, recovery)
	if err != nil {
		return err
	}
	l := &stream{Folder: folder, path: c.Successors, served: []*served{first}}
	i.streams = append(i.streams, l)
	for _, t := range l.Tasks()[1:] {
		next, err := i.loadSuccessor(l, t)
		if err != nil {
			return fmt.Errorf("position %d: %w", t.Stream.Position, err)
		}
		if i.lineup().tasks[next.ID] != nil {
			return invalid.Field("tasks", next.ID.String(), "each task once: it follows in the stream")
		}
		i.serve(next)
		l.served = append(l.served, next)
	}
	return nil
}

// loadSuccessor prepares to serve a task behind the first.
func (i *Issuer) loadSuccessor(l *stream, t *succession.Task) (*served, error) {
	if err := i.mayTell(t.Open); err != nil {
		return nil, err
	}
	next, err := loadOpen(t.Open, l.Keys(t.Task), l.served[0].quota)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the owner signed a task without this issuer's keys in %s: %w", l.path, err)
	}
	return next, err
}

// followLoop takes up the successors of all streams as they come.
func (i *Issuer) followLoop(ctx context.Context) {
	for _, l := range i.streams {
		if err := durable.MakeFolder(l.path, 0o700); err != nil { // where the operator puts keys
			i.cfg.Log.Error("couldn't make the folder of successors", "error", err)
		}
	}
	for len(i.streams) > 0 {
		for _, l := range i.streams {
			i.noteFollowed(ctx, l, i.follow(ctx, l))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(i.cfg.FollowInterval):
		}
	}
}

// noteFollowed says in the log, once, and in the metrics that a stream cannot go on here.
func (i *Issuer) noteFollowed(ctx context.Context, l *stream, err error) {
	if ctx.Err() != nil {
		return
	}
	name, failed := l.served[0].name(), ""
	if err != nil {
		failed = err.Error()
	}
	i.metrics.Set(metricStuck, service.Boolean(err != nil), name)
	if err != nil && failed != l.failed {
		i.cfg.Log.Error("couldn't follow a stream; trying again", "task", name, "error", err)
	}
	l.failed = failed
}

// follow takes what is new of a stream, and begins to serve what was taken.
func (i *Issuer) follow(ctx context.Context, l *stream) error {
	err := l.Follow(ctx, i.relays, uint64(max(i.clock.Read().Now.Unix(), 0)), func(t *succession.Task) error {
		_, err := i.loadSuccessor(l, t)
		return err
	})
	for _, t := range l.Tasks()[len(l.served):] {
		if failed := i.join(l, t); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}

// join serves a task that was taken.
func (i *Issuer) join(l *stream, t *succession.Task) error {
	next, err := i.loadSuccessor(l, t)
	if err != nil {
		return err
	}
	if err := i.store.join(next); err != nil {
		return fmt.Errorf("couldn't issue tokens of task %s: %w", next.ID, err)
	}
	if err := i.eraseAgain(next); err != nil {
		return err
	}
	i.serve(next)
	l.served = append(l.served, next)
	i.meet()
	endsLater(i.metrics, l)
	i.cfg.Log.Info("a stream goes on", "task", next.name(), "position", t.Stream.Position)
	return nil
}
