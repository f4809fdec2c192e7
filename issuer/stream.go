package issuer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/wire/taskfile"
)

// hostedStream is a stream whose first task is in the configuration. The issuer gets the stream's later tasks from the
// first relay. A later task may change only what the first task allows. hostedStream implements [taskstream.Server].
type hostedStream struct {
	*taskstream.Folder
	issuer *Issuer
	path   string
	served []*hostedTask // By position.
}

// loadStream loads the later tasks of a stream that are already in the folder, if the given task is the first of a
// stream.
func (i *Issuer) loadStream(c TaskConfig, raw []byte, first *hostedTask) error {
	in := first.Stream
	switch {
	case in == nil && c.Recovery != "":
		return invalid.Field("recovery", c.Recovery, "none, for a task that is in no stream")
	case c.Successors == "" && (in == nil || in.Position > 0):
		return nil // the operator may configure a later task by itself
	case c.Successors == "":
		return invalid.Field("successors", `""`, "a folder, for the first task of a stream")
	}
	recovery, err := taskfile.ParseRecovery(c.Recovery)
	if err != nil {
		return err
	}
	folder, err := taskstream.Open(c.Successors, raw, recovery)
	if err != nil {
		return err
	}
	l := &hostedStream{Folder: folder, issuer: i, path: c.Successors, served: []*hostedTask{first}}
	i.streams = append(i.streams, l)
	for _, t := range l.Tasks()[1:] {
		next, err := l.load(t)
		if err != nil {
			return fmt.Errorf("position %d: %w", t.Stream.Position, err)
		}
		if i.hosted().tasks[next.ID] != nil {
			return invalid.Field("tasks", next.ID.String(), "each task once: it already follows in the stream")
		}
		i.serve(next)
		l.served = append(l.served, next)
	}
	return nil
}

// load prepares a later task of the stream: it finds the issuer's keys for the task and checks them.
func (l *hostedStream) load(t *taskstream.StreamTask) (*hostedTask, error) {
	if err := l.issuer.checkTimeKey(t.Open); err != nil {
		return nil, err
	}
	next, err := loadOpen(t.Open, l.Keys(t.Task), l.served[0].quota)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the owner signed a task, but %s has no keys of this issuer for it: %w", l.path, err)
	}
	return next, err
}

// follow looks for new tasks of all streams and serves them, until ctx ends.
func (i *Issuer) follow(ctx context.Context) {
	f := taskstream.Follower{Client: i.relays, Every: i.cfg.FollowInterval, Log: i.cfg.Log,
		Clock: func() time.Time { return i.clock.Read().Now }}
	for _, l := range i.streams {
		f.Streams = append(f.Streams,
			&taskstream.Followed{Folder: l.Folder, Path: l.path, Name: l.served[0].name(), Server: l})
	}
	f.Run(ctx)
}

// Prepare returns an error if the issuer cannot serve a task. It changes nothing.
func (l *hostedStream) Prepare(t *taskstream.StreamTask) error {
	_, err := l.load(t)
	return err
}

// Served returns how many of the stream's tasks the issuer serves.
func (l *hostedStream) Served() int { return len(l.served) }

// Stuck sets the metric that is 1 while the issuer cannot continue the stream. err is nil when it can.
func (l *hostedStream) Stuck(err error) {
	l.issuer.metrics.Set(metricStuck, service.Flag(err != nil).Value(), l.served[0].name())
}

// Serve serves the next task of the stream.
func (l *hostedStream) Serve(t *taskstream.StreamTask) error {
	i := l.issuer
	next, err := l.load(t)
	if err != nil {
		return err
	}
	if err := i.store.join(next); err != nil {
		return fmt.Errorf("couldn't issue tokens of task %s: %w", next.ID, err)
	}
	if err := i.eraseRestoredKeys(next); err != nil {
		return err
	}
	if err := next.checkWhole(i.store.erased(next.ID)); err != nil {
		return err
	}
	i.serve(next)
	l.served = append(l.served, next)
	i.setClockPeers()
	setStreamEnd(i.metrics, l)
	i.cfg.Log.Info("stream continued", "task", next.name(), "position", t.Stream.Position)
	return nil
}
