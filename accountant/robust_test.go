package accountant_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
)

// For random arguments from the whole allowed range, δ must be a probability and be computed in bounded time. Rule
// exact, which hides the target's blanket bit, must never give a larger δ than rule revealed.
func TestRandomArguments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	logUniform := func(low, high float64) float64 {
		return math.Exp(math.Log(low) + rng.Float64()*math.Log(high/low))
	}
	var slowest time.Duration
	for range 1500 {
		k, users := uint64(logUniform(2, accountant.MaxK)), uint64(logUniform(1, accountant.MaxUsers))
		gamma := logUniform(1e-9, 1)
		if rng.IntN(4) == 0 {
			gamma = 1 - logUniform(1e-9, .5)
		}
		eps := rng.Float64() * accountant.KRREpsilon0(k, gamma) * logUniform(1e-4, 1)
		start := time.Now()
		exact, err := accountant.KRRDelta(accountant.Exact, k, gamma, users, eps)
		slowest = max(slowest, time.Since(start))
		require.NoError(t, err)
		require.True(t, exact >= 0 && exact <= 1, "k=%d γ=%g n=%d ε=%g: %g", k, gamma, users, eps, exact)
		revealed, err := accountant.KRRDelta(accountant.Revealed, k, gamma, users, eps)
		require.NoError(t, err)
		require.True(t, revealed >= 0 && revealed <= 1, "k=%d γ=%g n=%d ε=%g: %g", k, gamma, users, eps, revealed)
		require.LessOrEqual(t, exact, revealed*(1+1e-6)+1e-280, "k=%d γ=%g n=%d ε=%g", k, gamma, users, eps)
	}
	t.Logf("slowest of 1500: %v", slowest)
}

// For γ from 2⁻⁶² to 1 and ε from 0 to the last float64 below ε₀, δ must be a probability that falls with ε, and a rule
// that reveals less must never give a larger δ. Three cases once failed: rule others with a fair flip; rule exact if
// only rounding puts a step above 0; and rule exact if N₁ may be huge with a tiny probability.
func TestCornersOfRandomizedResponse(t *testing.T) {
	rules := []accountant.Rule{accountant.Revealed, accountant.Exact, accountant.Others}
	for _, users := range []uint64{1, 3, 10, 2000, 10_000_000} {
		for _, k := range []uint64{2, 16, accountant.MaxK} {
			for _, gamma := range []float64{0x1p-62, 1e-8, 1e-3, 0.3, 0.99, 1 - 1e-12, 1 - 0x1p-53, 1} {
				eps0 := accountant.KRREpsilon0(k, gamma)
				last := [3]float64{1, 1, 1}
				for _, part := range []float64{0, 1e-300, 1e-6, 0.3, 0.95, 1 - 1e-6, 1 - 1e-13, 1 - 2e-15,
					1 - 0x1p-52} {
					above := 1.0
					for i, rule := range rules {
						if rule == accountant.Others && k != 2 {
							continue
						}
						delta, err := accountant.KRRDelta(rule, k, gamma, users, eps0*part)
						require.NoError(t, err)
						require.True(t, delta >= 0 && delta <= math.Min(above, last[i])*(1+1e-3)+2e-15,
							"%s, k=%d γ=%g n=%d ε=%g: %g, %g above it, %g before", rule, k, gamma, users, eps0*part,
							delta, above, last[i])
						above, last[i] = delta, delta
					}
				}
			}
		}
	}
}

// If float64 overflows, as for Laplace at ε₀ = 40, a bound must be +Inf: it proves nothing. It was once NaN, which the
// search took for a value below δ, so that it returned ε = 24.
func TestBoundsOutOfReachSayNothing(t *testing.T) {
	for _, users := range []uint64{1, 2, 1000} {
		for _, eps0 := range []float64{20, 33, 36, 40} {
			for _, bound := range accountant.Bounds(accountant.Laplace, 0) {
				a := accountant.Amplification{Mechanism: accountant.Laplace, Bound: bound, Epsilon0: eps0, Users: users}
				if a.Validate() != nil { // efmrtt19
					continue
				}
				delta, _, err := a.Delta(0.6 * eps0)
				require.NoError(t, err)
				require.Greater(t, delta, 0.9, "%s, ε₀ = %g, %d users", bound, eps0, users)
			}
		}
	}
	a := accountant.Amplification{Mechanism: accountant.Laplace, Bound: accountant.ExactBits, Epsilon0: 40, Users: 2}
	eps, _, err := a.Epsilon(1e-6)
	require.NoError(t, err)
	require.Greater(t, eps, 38.0)
}
