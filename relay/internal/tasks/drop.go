package tasks

import (
	"context"
	"maps"
	"slices"

	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// dropExpired lets go of the tasks of which all epochs have expired, so that no batch, manifest, key or replay set is
// kept. One of a stream must have a follower. What a fork would be known by stays: the bundle of every position, and in
// the store how far each epoch came. Of an approved owner's last one nothing stays: its place is free again.
func (h *Host) dropExpired(ctx context.Context) {
	for _, s := range h.Hosted().Order {
		if h.mayDrop(s) {
			h.monitor.Logged(ctx, "couldn't drop a task", h.drop(ctx, s))
		}
	}
}

// DropDropped lets go of what other processes have dropped: the file that its mark is in is gone.
func (h *Host) DropDropped(ctx context.Context) {
	for _, s := range h.Hosted().Order {
		if s.stream != nil && s.stream.Dropped(s.Task) || s.placeDropped() {
			h.monitor.Logged(ctx, "couldn't drop a task", h.drop(ctx, s))
		}
	}
}

// followed says whether the task is in a stream that went on.
func (s *Hosted) followed() bool {
	return s.stream != nil && s.Stream.Position+1 < uint64(len(s.stream.Tasks()))
}

// Place returns the task whose place in its owner's folder this one has.
func (s *Hosted) Place() task.ID {
	if s.stream != nil {
		return s.stream.root.ID
	}
	return s.ID
}

func (s *Hosted) placeDropped() bool { return s.owner != nil && s.owner.dropped(s.Place()) }

// mayDrop says whether all epochs of a task have expired, which is in a stream that went on, or the last one in an
// approved owner's place. One that the operator has ended is kept as long as if it had expired by itself: what was
// found of it is still asked for.
func (h *Host) mayDrop(s *Hosted) bool {
	for e := range s.EachEpoch() {
		if e.State() < store.StateExpired {
			return false
		}
	}
	_, end := s.Epoch(s.Epochs.Count - 1).Window()
	return (s.followed() || h.lastInPlace(s)) && h.Clock.Read().Over(end.Add(h.cfg.Retention))
}

// lastInPlace says whether nothing else has the task's place.
func (h *Host) lastInPlace(s *Hosted) bool {
	return s.owner != nil && !slices.ContainsFunc(h.Hosted().Order, func(t *Hosted) bool {
		return t != s && t.Place() == s.Place()
	})
}

// drop stops what is done for a task. The keys of the first of a stream stay with who configured it, or with the place.
// Those of others are removed when their mark is not looked at any more.
func (h *Host) drop(ctx context.Context, s *Hosted) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	h.vault.Unwatch(s.ID)
	before := h.Hosted()
	streams := before.streams
	switch {
	case s.owner != nil && (!s.followed() || s.placeDropped()):
		if !s.placeDropped() { // by another process, which has left nothing to remove
			if err := s.owner.drop(s.Place(), h.Clock.Read()); err != nil {
				return err
			}
		}
		streams = maps.Clone(streams)
		delete(streams, s.Place())
	case s.Stream.Position > 0:
		if err := s.stream.Drop(s.Task); err != nil {
			return err
		}
	}
	order := slices.Clone(before.Order)
	order = slices.DeleteFunc(order, func(t *Hosted) bool { return t == s })
	if err := h.serveOnly(order, streams); err != nil {
		return err
	}
	h.changed()
	h.monitor.ForgetOf(monitor.ByTask, s.ShortID())
	h.cfg.Log.Info("task dropped", "task", s.ShortID())
	return h.forgetRings(ctx, before)
}
