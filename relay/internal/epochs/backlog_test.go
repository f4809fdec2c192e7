package epochs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestFailingEpochsComeLast lets more epochs fail than one tick may end. All others must still end.
func TestFailingEpochsComeLast(t *testing.T) {
	const failing, all = mostBacklog + 10, 3 * mostBacklog
	s := &tasks.Hosted{Open: &taskfile.Open{ID: task.ID{1}}}
	other := &tasks.Hosted{Open: &taskfile.Open{ID: task.ID{2}}}
	waiting := map[uint64]bool{}
	for epoch := range uint64(all) {
		waiting[epoch] = true
	}
	var b backlog
	for range 4 {
		list := []due{{other.Epoch(0), time.Unix(all, 0)}}
		for epoch := range waiting {
			list = append(list, due{s.Epoch(epoch), time.Unix(int64(epoch), 0)})
		}
		now := b.ofTick(list)
		require.LessOrEqual(t, len(now), mostBacklog+2)
		var done []due
		for _, e := range now {
			switch {
			case e.Hosted == other:
				done = append(done, e)
			case e.Number >= failing:
				done = append(done, e)
				delete(waiting, e.Number)
			}
		}
		require.Contains(t, done, due{other.Epoch(0), time.Unix(all, 0)}, "the first epoch of each task")
		b.tried(now, done)
	}
	require.Len(t, waiting, failing)
}
