package planner_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/onion"
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

// TestBytesWithoutPadding: under padding none, the bytes of a report must be those of a report that has the expected
// number of slots, however many slots a client may send. The header of a longer array takes up to 4 bytes more.
func TestBytesWithoutPadding(t *testing.T) {
	d, err := planner.Draft(planner.Query{Name: "bytes", Query: task.Mean, Protocol: "correlated", Hi: 1,
		Padding: task.PaddingNone, Params: planner.Params{"max": 8}, Batch: 10_000, Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	messages, bytes, err := planner.Cost(d, m, 2)
	require.NoError(t, err)
	require.Greater(t, float64(d.Slots.PerLane), 100*messages)
	var sizes []float64
	for _, slots := range []float64{math.Floor(messages), math.Ceil(messages)} {
		sent := *d
		sent.Relays, sent.Slots.PerLane = make([]task.Party, 2), uint64(slots)
		layout, err := onion.NewLayout(&sent)
		require.NoError(t, err)
		sizes = append(sizes, float64(layout.MaxBody()))
	}
	require.GreaterOrEqual(t, bytes, sizes[0])
	require.LessOrEqual(t, bytes, sizes[1]+4)
}
