package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// TestRecommended: the first way has noise by relays if its error is at most twice the least error. The other ways
// follow by rising error. For all these goals, noise by clients has the least error.
func TestRecommended(t *testing.T) {
	for name, tt := range map[string]struct {
		goal  planner.Goal
		first planner.Noise
		least planner.Noise
	}{
		"count": {asking(task.Count, func(g *planner.Goal) {}), planner.NoiseRelays, planner.NoiseClients},
		"texts": {asking(task.Strings, func(g *planner.Goal) { g.Batch, g.Length, g.Epsilon = 1000, 2, 4 }),
			planner.NoiseRelays, planner.NoiseClients},
		"limited": {asking(task.Count, func(g *planner.Goal) { g.MaxDummies = 1 }), planner.NoiseClients,
			planner.NoiseClients},
	} {
		t.Run(name, func(t *testing.T) {
			ways, err := planner.Plan(tt.goal, nil)
			require.NoError(t, err)
			least := planner.LeastError(ways)
			require.Equal(t, tt.first, ways[0].Noise)
			require.Equal(t, tt.least, least.Noise)
			require.LessOrEqual(t, ways[0].RMSE, planner.RecommendedError*least.RMSE)
			last := 0.
			for _, w := range ways[1:] {
				require.False(t, w.Why == nil && w.RMSE < last, "errors rise")
				if w.Why == nil {
					last = w.RMSE
				}
			}
		})
	}
}
