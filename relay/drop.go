package relay

import (
	"context"
	"slices"

	"github.com/doona-dp/doona/relay/internal/store"
)

// dropExpired lets go of the tasks of streams of which nothing is left but their place: another has followed, and all
// epochs have expired, so that no batch, manifest, key or replay set is kept. What a fork would be known by stays: the
// bundle of every position, and in the store how far each epoch came.
func (r *Relay) dropExpired(ctx context.Context) {
	for _, s := range r.lineup().order {
		if r.mayDrop(s) {
			r.logged(ctx, "couldn't drop a task", r.drop(s))
		}
	}
}

// dropDropped lets go of what other processes have dropped: the file that its mark is in is gone.
func (r *Relay) dropDropped(ctx context.Context) {
	for _, s := range r.lineup().order {
		if s.stream != nil && s.stream.Dropped(s.Task) {
			r.logged(ctx, "couldn't drop a task", r.drop(s))
		}
	}
}

// mayDrop says whether the task is in a stream that went on, and all its epochs have expired. One that the operator
// has ended is kept as long as if it had expired by itself: what was found of it is still asked for.
func (r *Relay) mayDrop(s *served) bool {
	if s.stream == nil || s.Stream.Position+1 >= uint64(len(s.stream.Tasks())) {
		return false
	}
	for epoch := range s.Epochs.Count {
		if s.state(epoch) < store.StateExpired {
			return false
		}
	}
	_, end, _ := r.window(s, s.Epochs.Count-1)
	return r.clock.Read().Over(end.Add(r.cfg.Retention))
}

// drop stops what is done for a task. The keys of the first of a stream stay with who configured it. Those of others
// are removed when their mark is not looked at any more.
func (r *Relay) drop(s *served) error {
	r.joining.Lock()
	defer r.joining.Unlock()
	r.vault.Unwatch(s.ID)
	if s.Stream.Position > 0 {
		if err := s.stream.Drop(s.Task); err != nil {
			return err
		}
	}
	order := slices.Clone(r.lineup().order)
	if err := r.serveOnly(slices.DeleteFunc(order, func(t *served) bool { return t == s })); err != nil {
		return err
	}
	r.meet()
	r.metrics.ForgetOf(byTask, s.name())
	r.cfg.Log.Info("task dropped", "task", s.name(), "position", s.Stream.Position)
	select {
	case r.came <- struct{}{}:
	default:
	}
	return nil
}
