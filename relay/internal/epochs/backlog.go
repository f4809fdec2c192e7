package epochs

import (
	"cmp"
	"slices"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// mostBacklog is how many epochs one tick may end beyond the first of each task or stream.
const mostBacklog = 64

// backlog chooses which epochs to end in one tick of Loop.
type backlog struct {
	failed map[store.EpochID]bool // failed at the last attempt: they come last, so that they do not block others
}

// ofTick returns the epochs to end in one tick: first the oldest of each stream or single task, then a few others. One
// long backlog then does not delay the sealing of other tasks' full batches.
func (b *backlog) ofTick(all []due) []due {
	late := func(e due) int {
		if b.failed[e.ID()] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(x, y due) int { return cmp.Or(late(x)-late(y), x.end.Compare(y.end)) })
	seen := map[task.ID]bool{}
	var first, others []due
	for _, e := range all {
		if slot := e.Slot(); seen[slot] {
			others = append(others, e)
		} else {
			seen[slot] = true
			first = append(first, e)
		}
	}
	return append(first, others[:min(mostBacklog, len(others))]...)
}

// tried records which epochs failed: those of all that are not in done.
func (b *backlog) tried(all, done []due) {
	if b.failed == nil {
		b.failed = map[store.EpochID]bool{}
	}
	for _, e := range all {
		b.failed[e.ID()] = true
	}
	for _, e := range done {
		delete(b.failed, e.ID())
	}
}
