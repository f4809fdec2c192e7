package tasks

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// dropExpired drops the tasks whose epochs have all expired, so that the relay keeps no batch, manifest, key or replay
// set of them. It drops a task of a stream only after a successor came. It keeps the evidence of a fork: the bundle of
// every position, and in the store the state of each epoch. Of an approved owner's last task it keeps nothing, and the
// owner's task slot is free again.
func (h *Host) dropExpired(ctx context.Context) {
	for _, s := range h.Due(h.Clock.Read().Latest) {
		if h.mayDrop(s) {
			h.monitor.Logged(ctx, "couldn't drop a task", h.drop(ctx, s))
		}
	}
}

// DropDropped drops the tasks that another process has dropped: that process removed the key file with the rollback
// mark.
func (h *Host) DropDropped(ctx context.Context) {
	for _, s := range h.Hosted().Order {
		if s.stream != nil && s.stream.Dropped(s.Task) || s.slotDropped() {
			h.monitor.Logged(ctx, "couldn't drop a task", h.drop(ctx, s))
		}
	}
}

func (s *Hosted) followed() bool {
	return s.stream != nil && s.Stream.Position+1 < uint64(len(s.stream.Tasks()))
}

// Slot returns the id that names this task's slot in its owner's folder: the id of the stream's first task, or of the
// task itself.
func (s *Hosted) Slot() task.ID {
	if s.stream != nil {
		return s.stream.root.ID
	}
	return s.ID
}

func (s *Hosted) slotDropped() bool { return s.owner != nil && s.owner.dropped(s.Slot()) }

// mayDrop reports whether all epochs of a task have expired, and the task has a successor or is the last task in its
// slot of an approved owner. Epochs that the operator ended early expire Retention after their planned end: until then,
// others can still ask about findings in them.
func (h *Host) mayDrop(s *Hosted) bool {
	_, end := s.Epoch(s.Epochs.Count - 1).Window()
	if set := h.Hosted().SetWith(s.ID); set != nil { // submissions have a slot for this table until the set's last day
		end = time.Unix(int64(set.Tasks[0].Epochs.Over()), 0).Add(s.skew)
	}
	if !h.Clock.Read().Over(end.Add(h.cfg.Retention)) {
		return false
	}
	for e := range s.EachEpoch() {
		if e.State() < store.StateExpired {
			return false
		}
	}
	return s.followed() || h.lastInSlot(s)
}

// lastInSlot reports whether the task is an approved owner's and alone in its slot.
func (h *Host) lastInSlot(s *Hosted) bool {
	return s.owner != nil && !slices.ContainsFunc(h.Hosted().Order, func(t *Hosted) bool {
		return t != s && t.Slot() == s.Slot()
	})
}

// drop stops serving a task. It keeps the keys of a stream's first task, which belong to the operator's configuration
// or to the owner's slot. It removes another task's keys after the vault has stopped reading the rollback mark in them.
func (h *Host) drop(ctx context.Context, s *Hosted) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	h.vault.Unwatch(s.ID)
	before := h.Hosted()
	streams, sets := before.streams, before.sets
	switch {
	case s.owner != nil && (!s.followed() || s.slotDropped()):
		if !s.slotDropped() { // otherwise the other process has removed the folder
			if err := s.owner.drop(s.Slot(), h.Clock.Read()); err != nil {
				return err
			}
		}
		streams = maps.Clone(streams)
		delete(streams, s.Slot())
		var err error
		if sets, err = h.withoutDroppedSets(s.owner, sets); err != nil {
			return err
		}
	case s.Stream.Position > 0:
		if err := s.stream.Drop(s.Task); err != nil {
			return err
		}
	}
	order := slices.Clone(before.Order)
	order = slices.DeleteFunc(order, func(t *Hosted) bool { return t == s })
	h.publish(newSet(order, streams, sets))
	h.changed()
	h.cfg.Log.Info("task dropped", "task", s.ShortID())
	return h.forgetRings(ctx, before)
}
