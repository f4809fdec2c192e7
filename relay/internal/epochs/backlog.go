package epochs

import (
	"cmp"
	"slices"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// mostBacklog is how many epochs of all places are ended in one turn beyond the first of each.
const mostBacklog = 64

// backlog chooses which epochs are ended in one turn. Only Loop uses it.
type backlog struct {
	failed map[store.EpochID]bool // at the last attempt: they come last, or the others would never come
}

// ofTurn returns those of some epochs that are ended in one turn, the oldest first: one of each place, which is a
// stream or a task of its own, and a few of the others. So full batches of all tasks are sealed before all epochs of a
// place with many have ended.
func (b *backlog) ofTurn(all []due) []due {
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
		if place := e.Place(); seen[place] {
			others = append(others, e)
		} else {
			seen[place] = true
			first = append(first, e)
		}
	}
	return append(first, others[:min(mostBacklog, len(others))]...)
}

// tried takes note of which of some epochs have failed.
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
