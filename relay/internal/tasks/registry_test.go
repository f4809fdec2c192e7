package tasks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestDue: a task must be due as soon as one of its epochs has to be ended, erased or expired, or the task dropped. It
// must not be due before. After a jump of the clock, forth and back, the same moments must hold.
func TestDue(t *testing.T) {
	const skew, length, retention = time.Minute, time.Hour, 90 * time.Minute
	begin := time.Unix(1_800_000_000, 0)
	epochs := task.Epochs{Start: uint64(begin.Unix()), Length: task.Length(length / time.Second), Count: 3}
	end := func(n int) time.Time { return begin.Add(time.Duration(n+1)*length + skew) }
	const complete, erased, expired = store.StateComplete, store.StateErased, store.StateExpired
	for _, tt := range []struct {
		states []store.State
		want   time.Time
	}{
		{[]store.State{}, end(0)},
		{[]store.State{complete}, end(0)},
		{[]store.State{erased}, end(1)}, // before the first epoch expires
		{[]store.State{erased, erased}, end(0).Add(retention)},
		{[]store.State{expired, erased}, end(2)},
		{[]store.State{expired, erased, erased}, end(1).Add(retention)},
		{[]store.State{expired, expired, erased}, end(2).Add(retention)},
		{[]store.State{expired, expired, expired}, end(2).Add(retention)}, // then the relay may drop the task
		{[]store.State{store.StateEnded, store.StateEnded, store.StateOpen}, end(2)},
	} {
		open := &taskfile.Open{Task: &task.Task{Epochs: epochs}}
		s := &Hosted{Open: open, skew: skew, states: map[uint64]store.State{}}
		r := &Registry{cfg: Config{Retention: retention}}
		r.serving.Store(newSet([]*Hosted{s}, nil, nil))
		isDue := func(latest time.Time) bool { return len(r.Due(latest)) > 0 }
		before, jumped := tt.want.Add(-time.Second), tt.want.Add(1000*time.Hour)
		require.False(t, isDue(begin))
		for number, state := range tt.states {
			s.Epoch(uint64(number)).Reached(state)
		}
		require.False(t, isDue(before), tt.states)
		require.True(t, isDue(jumped), tt.states)
		require.False(t, isDue(before), tt.states)
		require.True(t, isDue(tt.want), tt.states)
	}
}
