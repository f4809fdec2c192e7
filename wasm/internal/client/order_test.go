package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestSlotsAreInRandomOrder: Client.Slots returns slots in uniformly random order, whatever order the protocol returns.
func TestSlotsAreInRandomOrder(t *testing.T) {
	slots := task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: stattest.Things, MessageBytes: 1}
	c := &Client{task: &task.Task{Slots: slots}, mechanism: fixture.InOrder{Messages: stattest.Things},
		source: randomizer.NewSource()}
	stattest.UniformLanes(t, stattest.Trials, 2, func() [][]int {
		lanes, err := c.Slots(nil)
		require.NoError(t, err)
		orders := make([][]int, len(lanes))
		for lane, messages := range lanes {
			for _, message := range messages {
				orders[lane] = append(orders[lane], int(message.Body[0]))
			}
		}
		return orders
	})
}
