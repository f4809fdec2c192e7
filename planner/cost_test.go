package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// TestCheckServable: batches have the size that a verifier can hold, when they come there, and submissions that of a
// relay.
func TestCheckServable(t *testing.T) {
	draft := func(size, perLane uint64) *task.Task {
		return &task.Task{KEM: task.KEMX25519, Batch: task.Batch{Size: size},
			Slots: task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: perLane, MessageBytes: 8}}
	}
	// 73 bytes a slot at the verifier, behind however many relays; 32 bytes and 5 a chunk of 1024.
	const most = 900 << 20 * 1024 / (73*1024 + 37)
	for hops := range 3 {
		require.NoError(t, planner.CheckServable(draft(most-100, 1), hops+1))
		require.ErrorContains(t, planner.CheckServable(draft(most+100, 1), hops+1), "invalid batch.size")
	}
	require.ErrorContains(t, planner.CheckServable(draft(2, 131072), 2), "invalid slots")
}
