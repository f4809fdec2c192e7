package shufflerclient

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/ordertest"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestReportOrdersSlotsAtRandom: the slots of a report are in a uniform order before they are sealed,
// whatever the protocol's.
func TestReportOrdersSlotsAtRandom(t *testing.T) {
	slots := task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: ordertest.Things, MessageBytes: 1}
	c := &Client{open: &taskfile.Open{Task: &task.Task{Slots: slots}}, mechanism: ordertest.InOrder{}}
	ordertest.UniformLanes(t, 2, func() [][]int {
		lanes, err := c.draw(nil)
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
