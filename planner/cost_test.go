package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// TestCheckServable: a report that is larger than relays accept is an error. A batch may have any size.
func TestCheckServable(t *testing.T) {
	draft := func(size, perLane uint64) *task.Task {
		return &task.Task{KEM: task.KEMX25519, Batch: task.Batch{Size: size},
			Slots: task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: perLane, MessageBytes: 8}}
	}
	for hops := range 3 {
		require.NoError(t, planner.CheckServable(draft(1<<32-1, 100), hops+1))
	}
	require.ErrorContains(t, planner.CheckServable(draft(2, 262144), 2), "invalid slots")
}
