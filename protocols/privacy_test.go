package protocols_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// claim returns a task with the fields that CalibrateKRR and CheckClaim read.
func claim(rule string, users uint64, eps, delta string) *task.Task {
	return &task.Task{
		Rule: rule, Claim: task.NewClaim(eps, delta),
		Batch: task.Batch{Size: users, Honest: randomizer.NewRational(1, 1), Min: users},
	}
}

// responses returns Pr[R(x) = y] for all symbols y, computed from γ and K alone.
func responses(r protocols.KRR, x uint64) []float64 {
	gamma, k := r.Gamma.Float64(), float64(r.K)
	out := make([]float64, r.K)
	for y := range out {
		out[y] = gamma / k
	}
	out[x] += 1 - gamma
	return out
}

// shuffled returns the distribution of the shuffled reports of clients with the given values: a multiset, keyed by its
// counts. It enumerates every outcome of every client.
func shuffled(r protocols.KRR, values []uint64) map[string]float64 {
	dist := map[string]float64{string(make([]byte, r.K)): 1}
	for _, x := range values {
		next := map[string]float64{}
		for counts, p := range dist {
			for y, q := range responses(r, x) {
				moved := []byte(counts)
				moved[y]++
				next[string(moved)] += p * q
			}
		}
		dist = next
	}
	return dist
}

// hockeyStick returns the divergence Σ (P - e^ε Q)₊, which is δ at ε.
func hockeyStick(p, q map[string]float64, eps float64) (delta float64) {
	for outcome, mass := range p {
		delta += max(mass-math.Exp(eps)*q[outcome], 0)
	}
	return delta
}

// worstDelta returns the largest δ over every input of the other clients and every substitution of one client's value.
func worstDelta(r protocols.KRR, users int, eps float64) (worst float64) {
	others := make([]uint64, users-1)
	for {
		for x := range r.K {
			for y := range r.K {
				p, q := shuffled(r, append([]uint64{x}, others...)), shuffled(r, append([]uint64{y}, others...))
				worst = max(worst, hockeyStick(p, q, eps))
			}
		}
		if !advance(others, r.K) {
			return worst
		}
	}
}

// advance moves v to the next vector over {0, …, k-1}. It returns false after the last.
func advance(v []uint64, k uint64) bool {
	for i := range v {
		if v[i]++; v[i] < k {
			return true
		}
		v[i] = 0
	}
	return false
}

func TestCalibratedShuffledMechanismIsPrivate(t *testing.T) {
	targets := []struct{ eps, delta string }{{"0.5", "0.2"}, {"1", "0.1"}, {"1.5", "0.05"}, {"2", "0.01"}}
	caught := 0
	rules := []struct {
		rule string
		k    uint64
	}{{"revealed", 2}, {"revealed", 3}, {"others", 2}}
	for _, target := range targets {
		for users := 1; users <= 4; users++ {
			for _, rule := range rules {
				k := rule.k
				t.Run(fmt.Sprintf("eps=%s/n=%d/K=%d/%s", target.eps, users, k, rule.rule), func(t *testing.T) {
					task := claim(rule.rule, uint64(users), target.eps, target.delta)
					eps, delta := task.Claim.Epsilon.Value(), task.Claim.Delta.Value()
					krr, err := protocols.CalibrateKRR(task, k)
					require.NoError(t, err)
					require.NoError(t, krr.CheckClaim(task))
					require.LessOrEqual(t, worstDelta(krr, users, eps), delta*(1+1e-12))

					weak := protocols.KRR{K: k, Gamma: randomizer.NewRational(krr.Gamma.Num, 2*krr.Gamma.Den)}
					require.Error(t, weak.CheckClaim(task), "half the noise must not pass the claim check")
					if worstDelta(weak, users, eps) > delta {
						caught++
					}
				})
			}
		}
	}
	require.Greater(t, caught, 40, "the enumeration must see that half the noise breaks most of the 48 claims")
}
