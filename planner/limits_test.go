package planner_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// randomGoal returns a goal of a random query that the kind of noise answers, with few users and no limits.
func randomGoal(r *rand.Rand, noise planner.Noise) planner.Goal {
	g := planner.Goal{Noise: noise, Hops: 1 + r.IntN(3)}
	g.Name, g.Honest = "limits", 1
	g.Epsilon = math.Exp2(4*r.Float64() - 2)
	g.Delta = math.Pow(10, -4-6*r.Float64())
	g.Batch = uint64(math.Pow(10, 1+1.5*r.Float64()))
	queries := []task.Query{task.Count, task.Sum, task.Mean, task.Histogram, task.Strings, task.Vector, task.VectorMean}
	if noise == planner.NoiseRelays {
		queries = queries[:5]
	}
	g.Query.Query = queries[r.IntN(len(queries))]
	switch g.Query.Query {
	case task.Sum, task.Mean:
		g.Hi = 1
	case task.Histogram:
		g.Labels, g.Bins = true, 2+r.Uint64N(30)
	case task.Vector, task.VectorMean:
		g.Hi, g.Dim = 1, 1+r.Uint64N(6)
		g.Sparse = g.Query.Query == task.Vector && r.IntN(2) == 0
	case task.Strings:
		g.Length = 1 + r.Uint64N(8)
	}
	return g
}

// limit is a cost that a goal can limit.
type limit struct {
	name  string
	noise planner.Noise // Who adds the noise of the ways that have this cost.
	of    func(w planner.Way) float64
	set   func(g *planner.Goal, most float64)
}

var limits = []limit{
	{"slots", planner.NoiseClients,
		func(w planner.Way) float64 { return float64(w.Task.Slots.PerLane * w.Task.Slots.Lanes) },
		func(g *planner.Goal, most float64) { g.MaxSlots = uint64(most) }},
	{"messages", planner.NoiseClients, func(w planner.Way) float64 { return w.Messages },
		func(g *planner.Goal, most float64) { g.MaxMessages = most }},
	{"dummies", planner.NoiseRelays, func(w planner.Way) float64 { return w.Dummies },
		func(g *planner.Goal, most float64) { g.MaxDummies = most }},
}

// TestLimitsWorsenNothing: a limit equal to the cost of a way must find a way of the same protocol, noise and padding
// with no larger error, and a looser limit must never give a larger error than a tighter one. Each goal has limits
// around the cost of one way. The long form has 300 goals.
func TestLimitsWorsenNothing(t *testing.T) {
	goals := 6
	if stattest.Long {
		goals = 300
	}
	r := rand.New(rand.NewPCG(45, 7))
	for i := range goals {
		l := limits[i%len(limits)]
		g, which := randomGoal(r, l.noise), r.IntN(1<<20)
		t.Run(fmt.Sprint(i, " ", l.name, " of a ", g.Query.Query), func(t *testing.T) {
			free, err := planner.Plan(g, nil)
			require.NoError(t, err)
			free = slices.DeleteFunc(free, func(w planner.Way) bool { return w.Why != nil })
			if len(free) == 0 {
				return // No protocol reaches the goal, whatever the limits are.
			}
			checkLimits(t, g, free, l, math.Ceil(l.of(free[which%len(free)])))
		})
	}
}

// checkLimits plans with limits below, at and above a cost.
func checkLimits(t *testing.T, g planner.Goal, free []planner.Way, l limit, cost float64) {
	least := map[string]float64{} // Error with the previous limits, by way.
	for _, most := range []float64{math.Ceil(cost * .6), math.Ceil(cost * .95), cost, math.Ceil(cost * 1.5)} {
		limited := g
		l.set(&limited, most)
		ways, err := planner.Plan(limited, nil)
		require.NoError(t, err)
		for _, w := range free {
			if l.of(w) <= most {
				least[nameOf(w)] = min(w.RMSE, cmp.Or(least[nameOf(w)], math.Inf(1)))
			}
		}
		for _, w := range ways {
			before := least[nameOf(w)]
			if w.Why != nil {
				require.Zero(t, before, "%s with %s ≤ %g: %v", nameOf(w), l.name, most, w.Why)
				continue
			}
			require.LessOrEqual(t, l.of(w), most*(1+1e-9))
			if before > 0 {
				require.LessOrEqual(t, w.RMSE, before*(1+1e-9), "%s with %s ≤ %g", nameOf(w), l.name, most)
			}
			least[nameOf(w)] = w.RMSE
		}
	}
}

func nameOf(w planner.Way) string { return fmt.Sprint(w.Protocol, " ", w.Noise, " ", w.Padding) }
