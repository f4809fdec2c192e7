package taskstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ErrForked means that the relays have another task at some position than the one in this folder.
var ErrForked = errors.New("the relays serve another stream")

// Follow fetches new tasks from the stream's relays, for issuers and verifiers, to which owners send no tasks. It adds
// a task only after ready has found that it can be served. Unlike Take, it keeps keys for other numbers of epochs,
// because the operator has made them.
func (f *Folder) Follow(ctx context.Context, client *handover.Requester, now uint64,
	ready func(*StreamTask) error) error {
	if err := f.Refresh(); err != nil {
		return err
	}
	tasks := f.Tasks()
	root, last := tasks[0], tasks[len(tasks)-1]
	served, err := client.StreamOf(ctx, root.Open, last.Task, f.trust)
	if err != nil {
		return err
	}
	if err := checkSameStream(tasks, served.Tasks); err != nil { // before anything is written
		return err
	}
	if err := f.adopt(served.Statements); err != nil {
		return err
	}
	for i, t := range served.Tasks[len(tasks):] {
		if err := f.follow(ctx, client, t, now, ready); err != nil {
			return fmt.Errorf("position %d: %w", len(tasks)+i, err)
		}
	}
	return nil
}

// checkSameStream returns an error unless the relays' stream begins with all tasks in this folder.
func checkSameStream(tasks []*StreamTask, served []*taskfile.Open) error {
	for i, t := range tasks {
		if i >= len(served) {
			return fmt.Errorf("%w: one that ends before position %d, where %s was taken", ErrForked, i, t.ID)
		}
		if served[i].ID != t.ID {
			return fmt.Errorf("%w: %s at position %d, where %s was taken", ErrForked, served[i].ID, i, t.ID)
		}
	}
	return nil
}

// follow fetches one task with its key lists and adds it. A relay's stream omits the key lists of tasks that are over.
func (f *Folder) follow(ctx context.Context, client *handover.Requester, t *taskfile.Open, now uint64,
	ready func(*StreamTask) error) error {
	raw, open, err := client.BundleOf(ctx, t)
	if err != nil {
		return err
	}
	next, has, err := f.Check(raw, open, now)
	if has || err != nil {
		return err
	}
	if err := ready(next); err != nil {
		return err
	}
	return f.take(next, func(*StreamTask) error { return nil })
}

// Server is an issuer or verifier of a stream that a [Follower] follows.
type Server interface {
	// Prepare returns an error if a task cannot be served. It is called before the task gets its position permanently.
	Prepare(*StreamTask) error

	// Serve begins to serve the next task of the stream, which has its position.
	Serve(*StreamTask) error

	// Served returns how many of the stream's tasks are served.
	Served() int

	// Stuck is called after every attempt to follow, with the error that keeps the stream from continuing here, or nil.
	Stuck(error)
}

// Followed is a stream that a [Follower] follows.
type Followed struct {
	*Folder
	Path   string // the folder's path
	Name   string // for the log
	Server Server
	failed string // error text of the last attempt
}

// Follower fetches the successors of streams from the streams' relays, for issuers and verifiers.
type Follower struct {
	Client  *handover.Requester
	Clock   func() time.Time
	Every   time.Duration // interval between two attempts to follow each stream
	Log     *slog.Logger
	Streams []*Followed
}

// Run follows the streams until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for _, s := range f.Streams {
		if err := durable.MakeFolder(s.Path, 0o700); err != nil { // the operator puts keys there
			f.Log.Error("couldn't make the folder of successors", "error", err)
		}
	}
	for len(f.Streams) > 0 {
		for _, s := range f.Streams {
			f.note(ctx, s, f.follow(ctx, s))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(f.Every):
		}
	}
}

// note tells the stream's server the result of follow, and logs an error unless it is the same as before.
func (f *Follower) note(ctx context.Context, s *Followed, err error) {
	if ctx.Err() != nil {
		return
	}
	s.Server.Stuck(err)
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if err != nil && failed != s.failed {
		f.Log.Error("couldn't follow a stream; trying again", "task", s.Name, "error", err)
	}
	s.failed = failed
}

// follow fetches new tasks of a stream, and makes the server serve those that it does not serve yet.
func (f *Follower) follow(ctx context.Context, s *Followed) error {
	err := s.Follow(ctx, f.Client, uint64(max(f.Clock().Unix(), 0)), s.Server.Prepare)
	for _, t := range s.Tasks()[s.Server.Served():] {
		if failed := s.Server.Serve(t); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}
