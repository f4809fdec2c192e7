package verifier_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
)

// FuzzMessage adds any bytes that a client may put in a slot to the aggregate of every protocol. They must be an error
// that changes nothing, or a message of the task's size, after which the estimate is still a number.
func FuzzMessage(f *testing.F) {
	names := slices.Sorted(maps.Keys(everyProtocol))
	mechanisms := make([]protocols.Mechanism, len(names))
	lanes := make([]int, len(names))
	size := make([]int, len(names))
	for i, name := range names {
		c := everyProtocol[name]
		q := c.Query
		q.Name, q.Honest = name, 1
		draft, err := planner.Draft(q)
		require.NoError(f, err)
		mechanisms[i], err = registry.Open(draft)
		require.NoError(f, err)
		lanes[i], size[i] = int(draft.Slots.Lanes), int(draft.Slots.MessageBytes)
		honest, err := mechanisms[i].Randomize(randomizer.NewSource(), c.Value)
		require.NoError(f, err)
		for lane, messages := range honest {
			for _, m := range messages[:min(len(messages), 1)] {
				f.Add(uint8(i), uint16(lane), m)
			}
		}
		for _, n := range []int{0, size[i] - 1, size[i], size[i] + 1} {
			ones := make([]byte, max(n, 0))
			for j := range ones {
				ones[j] = 0xff
			}
			f.Add(uint8(i), uint16(0), ones)
		}
	}
	f.Fuzz(func(t *testing.T, protocol uint8, lane uint16, message []byte) {
		i := int(protocol) % len(names)
		aggregate := mechanisms[i].Aggregate()
		before := aggregate.Total()
		if aggregate.Add(int(lane)%lanes[i], message) != nil {
			require.Equal(t, before, aggregate.Total(), names[i])
			require.Zero(t, aggregate.Reports(), names[i])
			return
		}
		require.Len(t, message, size[i], names[i])
		aggregate.AddUsers(1)
		for _, v := range aggregate.Total() {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0), names[i])
		}
	})
}
