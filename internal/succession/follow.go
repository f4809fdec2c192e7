package succession

import (
	"context"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ErrForked is returned where the relays have another task at a position than was taken here.
var ErrForked = errors.New("the relays serve another stream")

// Follow takes from the stream's relays the tasks that are not here yet, each when ready has found that it can be
// served: for a party that no owner hands them to. Keys that were made for other numbers of epochs stay, as its
// operator has made them.
func (f *Folder) Follow(ctx context.Context, client *handover.Client, now uint64, ready func(*Task) error) error {
	if err := f.Refresh(); err != nil {
		return err
	}
	tasks := f.Tasks()
	root, last := tasks[0], tasks[len(tasks)-1]
	served, err := client.StreamOf(ctx, root.Open, last.Task, f.trust)
	if err != nil {
		return err
	}
	if err := sameLine(tasks, served.Tasks); err != nil { // before anything is written down
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

// sameLine is an error unless what is served begins with all that was taken here.
func sameLine(tasks []*Task, served []*taskfile.Open) error {
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

// follow takes one task, with its lists of keys, which the stream has not where the task is over.
func (f *Folder) follow(ctx context.Context, client *handover.Client, t *taskfile.Open, now uint64,
	ready func(*Task) error) error {
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
	return f.take(next, func(*Task) error { return nil })
}
