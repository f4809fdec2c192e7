package correlated_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestNearlyCentralForManyClients: a mean of many clients at (1, 10⁻⁸) has nearly the error of a curator, and few
// messages on average. The slots of a batch are bounded close to those that come.
func TestNearlyCentralForManyClients(t *testing.T) {
	cases := map[uint64]float64{1e5: 60}
	if stattest.Long {
		cases[1e6], cases[1e7] = 25, 10
	}
	for n, most := range cases {
		d := draft(task.Mean, task.PaddingNone, n, "1", "1e-8")
		m := calibrated(t, d, correlated.Options{})
		zeroSum, central := m.Messages()
		messages, ratio := 1+zeroSum+central, math.Sqrt(m.Worst().Variance*float64(n))/math.Sqrt2
		t.Logf("n = %d: %.1f messages, %.3f times the central error, B = %d, at most %d slots on average", n, messages,
			ratio, d.Slots.PerLane, d.Slots.Average)
		require.LessOrEqual(t, messages, most)
		require.LessOrEqual(t, ratio, 1.25)
		require.Greater(t, float64(d.Slots.Average), messages)
		require.Less(t, float64(d.Slots.Average), 1.5*messages)
		if n == 1e5 {
			draw, err := m.Capabilities().Fast(spread(int(n), func(int) []float64 { return []float64{1} }))
			require.NoError(t, err)
			_, sent := draw(randomizer.NewSource())
			require.LessOrEqual(t, sent(), d.Slots.Average*n) // fails with a probability of 2^-40
		}
	}
}
