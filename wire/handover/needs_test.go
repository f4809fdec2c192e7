package handover_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// TestNeedsGrowWithTheBatch: each party's disk and time must grow with its number of slots. The verifier's memory must
// grow with the slots, the first relay's with the reports, and a later relay's not at all. Dummies must cost every party
// disk and time.
func TestNeedsGrowWithTheBatch(t *testing.T) {
	one := &task.Task{KEM: task.KEMX25519, Relays: make([]task.Party, 3), Batch: task.Batch{Size: 1e6},
		Slots: task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: 3, MessageBytes: 8}}
	load := handover.FullLoad(one)
	require.Equal(t, handover.Load{Clients: 1e6, Reports: 1e6, Slots: 6e6}, load)
	needs, err := handover.Needs(one, load)
	require.NoError(t, err)
	require.Len(t, needs, 4)
	larger := *one
	larger.Batch.Size *= 10
	ten, err := handover.Needs(&larger, handover.FullLoad(&larger))
	require.NoError(t, err)
	worst := handover.Worst(needs)
	for hop, n := range needs {
		require.InEpsilon(t, 10*n.Disk, ten[hop].Disk, 1e-9)
		require.InEpsilon(t, 10*n.Seconds, ten[hop].Seconds, 1e-9)
		require.LessOrEqual(t, n.Disk, worst.Disk)
		require.LessOrEqual(t, n.Memory, worst.Memory)
		if hop == 0 {
			require.EqualValues(t, handover.KnownMemory*9e6, ten[hop].Memory-n.Memory,
				"only the first relay remembers who has reported")
		} else if hop < 3 {
			require.Equal(t, n.Memory, ten[hop].Memory, "relays hold no batch in memory")
		}
	}
	require.Equal(t, 20*54e6, ten[3].Memory-needs[3].Memory)
	require.Equal(t, needs[0].Seconds+needs[1].Seconds+needs[2].Seconds+needs[3].Seconds, worst.Seconds)
	several := *one
	several.Noise = &task.Noise{Kind: task.NoisePool, Cells: 1, Pool: 1, Batches: 7}
	epoch, err := handover.Needs(&several, handover.FullLoad(&several))
	require.NoError(t, err)
	require.EqualValues(t, handover.KnownMemory*6e6, epoch[0].Memory-needs[0].Memory, "in all batches of the epoch")
	load.Dummies = 1e5
	noisy, err := handover.Needs(one, load)
	require.NoError(t, err)
	for hop, n := range noisy {
		require.Greater(t, n.Disk, needs[hop].Disk)
		require.Greater(t, n.Seconds, needs[hop].Seconds)
	}
}
