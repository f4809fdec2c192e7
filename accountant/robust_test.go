package accountant_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
)

// Over random arguments from the whole allowed range: a probability comes back in bounded time,
// and hiding the target's blanket bit never costs privacy.
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
