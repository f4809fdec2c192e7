package relay_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/ordertest"
	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// TestEveryHopPermutes: the first relay, a mix and the last relay each put the slots of either lane in a
// uniform order of its own, whatever the others do: their input is in order. The batches are made by the code that
// seals and mixes, signatures among it; only the opening of slots and the store are left out.
func TestEveryHopPermutes(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3, Task: func(t *task.Task) { t.Batch.Size, t.Slots.Lanes = ordertest.Things, 2 }})
	for hop := range 3 {
		t.Run(fmt.Sprintf("hop %d", hop), func(t *testing.T) {
			r, err := relay.New(c.Config(t, hop))
			require.NoError(t, err)
			defer r.Close()
			order := relay.Orders(r, ordertest.Things, sealedInOrder(t, c, hop-1))
			ordertest.UniformLanes(t, 2, func() [][]int {
				made, err := order()
				require.NoError(t, err)
				return made
			})
		})
	}
}

// sealedInOrder returns a batch of slots {0}, {1}, … in two lanes that the relay at a hop has signed.
func sealedInOrder(t *testing.T, c *relaytest.Cascade, hop int) *onion.Batch {
	t.Helper()
	if hop < 0 {
		return nil
	}
	var lane [][]byte
	for i := range byte(ordertest.Things) {
		lane = append(lane, []byte{i})
	}
	at := onion.Context{TaskID: c.Open.ID, Hop: hop}
	b, err := onion.NewBatch(c.SignKey(t, hop), at, 0, ordertest.Things, []uint64{ordertest.Things, ordertest.Things}, [][][]byte{lane, lane}, nil)
	require.NoError(t, err)
	return b
}

// TestReportsAreStoredInRandomOrder: those that wait for one transaction go to the store in a uniform
// order, not in that of their arrival.
func TestReportsAreStoredInRandomOrder(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	r, err := relay.New(c.Config(t, 0))
	require.NoError(t, err)
	defer r.Close()
	ordertest.Uniform(t, func() []int { return relay.GroupOrder(r, ordertest.Things) })
}
