package shufflerclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestReportOrdersSlotsAtRandom: before a client seals its slots, their order must be uniformly random, whatever order
// the protocol returned.
func TestReportOrdersSlotsAtRandom(t *testing.T) {
	slots := task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: stattest.Things, MessageBytes: 1}
	c := shufflerclient.ClientOf(&taskfile.Open{Task: &task.Task{Slots: slots}},
		fixture.InOrder{Messages: stattest.Things}, nil)
	stattest.UniformLanes(t, stattest.Trials, 2, func() [][]int {
		lanes, err := c.Draw(nil)
		require.NoError(t, err)
		orders := make([][]int, len(lanes))
		for lane, messages := range lanes {
			for _, m := range messages {
				orders[lane] = append(orders[lane], int(m.Body[0]))
			}
		}
		return orders
	})
}

// TestSealedSlotsAreInRandomOrder: the same must hold for the slots that relay and verifier find when they open a
// submission.
func TestSealedSlotsAreInRandomOrder(t *testing.T) {
	cascade := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) {
		t.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: stattest.Things, MessageBytes: 1}
	}})
	sealer, err := onion.NewSealer(cascade.Open.Task, cascade.Open.ID, cascade.Open.KeyLists)
	require.NoError(t, err)
	c := shufflerclient.ClientOf(cascade.Open, fixture.InOrder{Messages: stattest.Things}, sealer)
	relay, verifier := cascade.Opener(t, 0, 0), cascade.VerifierOpener(t, 0)
	stattest.UniformLanes(t, stattest.FewTrials, 2, func() [][]int {
		report, err := c.Report(0, nil)
		require.NoError(t, err)
		envelope, err := relay.OpenEnvelope(report.Body)
		require.NoError(t, err)
		orders := make([][]int, 2)
		for lane, slots := range envelope.Lanes {
			for _, slot := range slots {
				_, m, err := verifier.OpenMessage(lane, slot)
				require.NoError(t, err)
				orders[lane] = append(orders[lane], int(m.Body[0]))
			}
		}
		return orders
	})
}
