package epochs

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/task"
)

// reshuffles are the sets whose open batches wait to be permuted anew: a day has ended, so what lies together on the
// disk must no longer tell which slots came in one submission. At the start all sets wait, because a crash may have
// come between the end of a day and this work.
type reshuffles struct {
	begun bool // of Loop: the sets of the start have been added

	mu      sync.Mutex         // guards waiting
	waiting map[task.ID]string // by set: why the last attempt failed, or ""
}

// add makes sets wait.
func (r *reshuffles) add(sets ...*tasks.HostedSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[task.ID]string{}
	}
	for _, s := range sets {
		if _, has := r.waiting[s.ID]; !has {
			r.waiting[s.ID] = ""
		}
	}
}

// ended records the outcome of an attempt.
func (r *reshuffles) ended(id task.ID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.waiting, id)
	} else {
		r.waiting[id] = err.Error()
	}
}

// Unpermuted returns why the open batches of a set could not be permuted anew since its last day ended, or "".
func (ep *Lifecycle) Unpermuted(id task.ID) string {
	ep.reshuffles.mu.Lock()
	defer ep.reshuffles.mu.Unlock()
	return ep.reshuffles.waiting[id]
}

// reshuffle permutes the open batches of the sets that wait, except those of their first tables, whose epochs are days.
// What fails waits for the next tick.
func (ep *Lifecycle) reshuffle(ctx context.Context) {
	hosted := ep.Hosted()
	if !ep.reshuffles.begun {
		ep.reshuffles.begun = true
		ep.reshuffles.add(hosted.Sets()...)
	}
	ep.reshuffles.mu.Lock()
	waiting := slices.Collect(maps.Keys(ep.reshuffles.waiting))
	ep.reshuffles.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	all, err := ep.Whole.Progress(ctx)
	if err != nil {
		ep.monitor.Logged(ctx, "couldn't list open batches", err)
		return
	}
	for _, id := range waiting {
		s := hosted.SetByID(id)
		if s == nil || s.First().Hop > 0 {
			ep.reshuffles.ended(id, nil)
			continue
		}
		err := ep.reshuffleSet(ctx, s, all)
		ep.reshuffles.ended(id, err)
		ep.monitor.Logged(ctx, "couldn't permute a set's open batches", err)
	}
}

func (ep *Lifecycle) reshuffleSet(ctx context.Context, s *tasks.HostedSet, all []store.Progress) error {
	sizes := map[task.ID]uint64{}
	for i, t := range s.Tasks[1:] {
		sizes[s.Tables[i+1].Task] = t.Batch.Size
	}
	for _, p := range all {
		if size := sizes[p.ID.Task]; size > 0 && p.State == store.StateOpen {
			for _, b := range p.Open {
				if err := ep.Whole.Reshuffle(ctx, b.BatchID, size); err != nil {
					return err
				}
			}
		}
	}
	ep.unscrubbed.Store(true)
	return nil
}
