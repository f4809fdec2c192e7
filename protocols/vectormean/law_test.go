package vectormean

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/enumerate"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// The law is nowhere below the rule's curve at ε in [−8, 8], nor above it by more than 1 % in ε where δ is in
// [1e-12, .1], or a few thousandths in δ where it is flat. The rule's curve is what its bounds at all ε prove
// together: each is the least of several, so they are not convex, and grids differ by a few thousandths in δ.
func TestLawIsItsRuleAtEveryEpsilon(t *testing.T) {
	for _, c := range []struct {
		dim, lanes, users uint64
		padding           task.Padding
		eps, delta        string
	}{
		{2, 1, 100, task.PaddingFull, "4", "1e-6"}, {2, 4, 100, task.PaddingFull, "4", "1e-6"},
		{16, 1, 10_000, task.PaddingFull, "1", "1e-6"}, {16, 1, 10_000, task.PaddingNone, "1", "1e-6"},
		{4, 8, 2000, task.PaddingNone, "2", "1e-9"}, {64, 1, 100_000, task.PaddingFull, "0.5", "1e-8"},
	} {
		draft := &task.Task{
			Name: "test", Query: task.VectorMean, Protocol: Name, Rule: Rule, KEM: task.KEMX25519,
			Input: task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: c.dim},
			Claim: task.NewClaim(c.eps, c.delta), Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
			Batch: task.Batch{Size: c.users, Honest: randomizer.NewRational(1, 1), Min: c.users},
			Slots: task.Slots{Padding: c.padding, Lanes: c.lanes},
		}
		require.NoError(t, new(Protocol).Calibrate(draft))
		opened, err := new(Protocol).Open(draft)
		require.NoError(t, err)
		m := opened.(*Mechanism)
		law, err := m.Law()
		require.NoError(t, err)
		bounds, least := m.curve(), 1.0
		var values []enumerate.Point
		for eps := 0.0; eps <= 8.2; eps += .002 * min(draft.Claim.Epsilon.Value(), 2) {
			least = min(least, bounds.delta(eps))
			values = append(values, enumerate.Point{Epsilon: eps, Delta: least})
		}
		rule, near := enumerate.Proven(values), 0
		for eps := -8.0; eps <= 8; eps += .03 {
			delta := rule(eps)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-3e-3), "%v at %v", c, eps)
			if eps > 0 && delta <= .1 && delta >= 1e-12 {
				near++
				require.LessOrEqual(t, law.Delta(1.01*eps), delta*1.003, "%v at %v", c, eps)
			}
		}
		require.Greater(t, near, 15)
		require.LessOrEqual(t, bounds.delta(math.Nextafter(draft.Claim.Epsilon.Value(), 0)),
			draft.Claim.Delta.Value()*1.01)
	}
}
