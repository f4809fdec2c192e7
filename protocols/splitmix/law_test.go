package splitmix

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Compares the law with the rule at ε in [−8, 8]. The rule is the divergence of discrete Laplace noise from its shift
// by p, summed term by term, plus the statistical distance of the shares. The law must nowhere be below the rule. For δ
// in [1e-12, .1] it must be at most 1 % in ε above it, or a thousandth in δ where the curve is flat.
func TestLawIsItsRuleAtEveryEpsilon(t *testing.T) {
	for _, claim := range []task.Claim{task.NewClaim("1", "1e-6"), task.NewClaim("4", "1e-9")} {
		draft := &task.Task{
			Name: "test", Query: task.Sum, Protocol: Name, Rule: RuleComponents, KEM: task.KEMX25519, Claim: claim,
			Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
			Batch: task.Batch{Size: 500, Honest: randomizer.NewRational(1, 1), Min: 500},
			Slots: task.Slots{Padding: task.PaddingFull}, Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		}
		require.NoError(t, new(Protocol).Calibrate(draft))
		opened, err := new(Protocol).Open(draft)
		require.NoError(t, err)
		m := opened.(*Mechanism)
		law, err := m.Law()
		require.NoError(t, err)
		distance, s, p := statisticalDistance(m.task.Rule, 500, m.m, m.q), m.s.Float64(), float64(m.p)
		scale, least := math.Tanh(s/2), 1.0
		var values []stattest.Point
		step := m.epsilon() / math.Ceil(m.epsilon()/.005) // s·p is on the grid
		for i := 0.0; i*step <= 8.1; i++ {
			eps, sum := i*step, 0.0
			for k := -math.Ceil(45 / s); k <= math.Ceil(45/s); k++ {
				sum += max(0, math.Exp(-s*math.Abs(k))-math.Exp(eps-s*math.Abs(k-p)))
			}
			least = min(least, sum*scale+(1+math.Exp(eps))*distance)
			values = append(values, stattest.Point{Epsilon: eps, Delta: least})
		}
		rule, near := stattest.Proven(values), 0
		for eps := -8.0; eps <= 8; eps += .01 {
			delta := rule(eps)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-1e-4), "at %v", eps)
			if eps > 0 && delta <= .1 && delta >= 1e-12 {
				near++
				require.LessOrEqual(t, law.Delta(1.01*eps), delta*1.001, "at %v", eps)
			}
		}
		require.Greater(t, near, 15)
	}
}

// The function shifted, the divergence of discrete Laplace noise from its shift, equals the sum over all outcomes.
func TestShiftedIsTheSum(t *testing.T) {
	for _, c := range []struct{ s, p float64 }{{.5, 2}, {.1, 10}, {.03, 41}, {1.5, 1}} {
		scale := (1 - math.Exp(-c.s)) / (1 + math.Exp(-c.s))
		for _, share := range []float64{0, .1, .35, .5, .9, .99, 1, 1.2} {
			eps, sum := share*c.s*c.p, 0.0
			for k := -2000.0; k <= 2000; k++ {
				p, q := scale*math.Exp(-c.s*math.Abs(k)), scale*math.Exp(-c.s*math.Abs(k-c.p))
				sum += math.Max(0, p-math.Exp(eps)*q)
			}
			require.InDelta(t, sum, shifted(c.s, c.p, eps), 1e-13, "s = %v, p = %v, ε = %v", c.s, c.p, eps)
		}
	}
}
