package correlated

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Compares the law with the rule's curve at ε in [−8, 8]. The law must nowhere be below it. For δ in [1e-12, .1] it
// must be at most 1 % in ε above it, or a thousandth in δ where the curve is flat. The rule's curve is what its bounds
// at all ε prove together. Each bound is the least of (P2) of internal/design over the orders, plus the cost of noise
// that does not fit. The bounds are 1 up to almost the claim's ε, and beyond it the missed probability remains.
func TestLawIsItsRuleAtEveryEpsilon(t *testing.T) {
	cases := []*task.Task{tinyTask(task.Count, task.PaddingNone, "1", "1e-6", 1000, 1)}
	if stattest.Long {
		cases = append(cases,
			tinyTask(task.Sum, task.PaddingNone, "1", "1e-6", 1000, 4),
			tinyTask(task.Sum, task.PaddingFull, "1", "1e-6", 1000, 16),
			tinyTask(task.Histogram, task.PaddingNone, "1", "1e-6", 1000, 1),
			tinyTask(task.Vector, task.PaddingNone, "2", "1e-8", 1000, 2),
			tinyTask(task.Sum, task.PaddingNone, "4", "1e-6", 1000, 16))
	}
	for _, draft := range cases {
		require.NoError(t, new(Protocol).Calibrate(draft))
		m, err := newMechanism(draft)
		require.NoError(t, err)
		law, err := m.Law()
		require.NoError(t, err)
		claimed, overflow, least := draft.Claim.Epsilon.Value(), m.overflow(), 1.0
		var values []stattest.Point
		for share := 0.0; share < 8/claimed; {
			eps := share * claimed
			least = min(least, m.moments(eps, 0)+(1+math.Exp(eps))*overflow)
			values = append(values, stattest.Point{Epsilon: eps, Delta: least})
			if share += .1; share > .69 && share < 1.5 {
				share -= .1 - .0025
			}
		}
		rule, near := stattest.Proven(values), 0
		for eps := -8.0; eps <= 8; eps += .04 * min(claimed, 2) {
			name := string(draft.Query)
			delta := rule(eps)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-1e-6), "%s at %v", name, eps)
			if eps > 0 && delta <= .1 && delta >= 1e-12 {
				near++
				require.LessOrEqual(t, law.Delta(1.01*eps), delta*1.001, "%s at %v", name, eps)
			}
		}
		require.Greater(t, near, 50)
	}
}

// Checks noise that is too much for any number of slots, under either rule. Its law must be that of an infinite loss,
// and must be returned at once: a task may ask for anything, and the search for the quantiles of such noise might not
// end.
func TestLawWithoutSlotsForIt(t *testing.T) {
	draft := tinyTask(task.Count, task.PaddingFull, "1", "1e-6", 1000, 1)
	require.NoError(t, new(Protocol).Calibrate(draft))
	var params []task.Param
	for _, p := range draft.Params {
		switch p.Key {
		case "pair.jump":
			continue
		case "pair.r":
			p.Value = randomizer.NewRational(1e9, 1)
		case "pair.s":
			p.Value = randomizer.NewRational(1, exponentUnit)
		}
		params = append(params, p)
	}
	draft.Params, draft.Batch.Size, draft.Batch.Min = params, 4e9, 4e9
	closed := tinyTask(task.Count, task.PaddingFull, "1", "1e-6", 1, 1)
	closed.Rule = RuleTheorem2
	closed.Params = append([]task.Param{{Key: "central", Value: randomizer.NewRational(1023, 1024)}}, closed.Params...)
	for _, one := range []*task.Task{draft, closed} {
		m, err := newMechanism(one)
		require.NoError(t, err)
		require.ErrorContains(t, m.CheckClaim(), "slots.perLane")
		law, err := m.Law()
		require.NoError(t, err)
		require.Equal(t, 1.0, law.Delta(50), one.Rule)
	}
}
