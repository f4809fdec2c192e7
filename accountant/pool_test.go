package accountant_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// poolSum returns δ(ε) of a pool by its definition: the sum over all numbers of messages in the two sets of cells.
func poolSum(b, dummies uint64, eps float64) (delta float64) {
	n, p := int(dummies)+1, 1/float64(b)
	for x := range n + 1 {
		for y := range n + 1 - x {
			log := lgamma(n) - lgamma(x) - lgamma(y) - lgamma(n-x-y) + float64(x+y)*math.Log(p)
			weight := math.Exp(log) * math.Pow(max(0, 1-2*p), float64(n-x-y))
			delta += weight * max(0, float64(x)-math.Exp(eps)*float64(y)) / (float64(n) * p)
		}
	}
	return delta
}

func lgamma(n int) float64 {
	log, _ := math.Lgamma(float64(n + 1))
	return log
}

// TestPoolDelta checks that PoolDelta equals its definition, rounded up by at most a negligible amount.
func TestPoolDelta(t *testing.T) {
	for _, b := range []uint64{2, 3, 4, 17} {
		for _, dummies := range []uint64{1, 2, 5, 60, 400} {
			for _, eps := range []float64{0, .1, 1, 3} {
				got, err := accountant.PoolDelta(b, dummies, eps)
				require.NoError(t, err)
				want := poolSum(b, dummies, eps)
				require.InEpsilon(t, want, got, 1e-8, "b %d, %d dummies, epsilon %v", b, dummies, eps)
				require.GreaterOrEqual(t, got, want*(1-1e-12))
			}
		}
	}
}

// TestPoolDummies checks that PoolDummies returns the fewest dummies that meet a claim: at (1, 1e-6), 42.7 for each set
// of cells.
func TestPoolDummies(t *testing.T) {
	for _, b := range []uint64{3, 100, 2000, 16_000} {
		dummies, err := accountant.PoolDummies(b, 1, 1e-6)
		require.NoError(t, err)
		enough, err := accountant.PoolDelta(b, dummies, 1)
		require.NoError(t, err)
		fewer, err := accountant.PoolDelta(b, dummies-1, 1)
		require.NoError(t, err)
		require.LessOrEqual(t, enough, 1e-6)
		require.Greater(t, fewer, 1e-6*(1-1e-8))
		if b >= 100 {
			require.InDelta(t, 42.66, float64(dummies)/float64(b), .6)
		}
	}
	_, err := accountant.PoolDummies(1<<40, 1, 1e-6)
	require.Error(t, err)
	_, err = accountant.PoolDelta(1, 10, 1)
	require.Error(t, err)
}

// TestPoolOutcomes checks that the dominating pair of a pool is never below PoolDelta, and close to it.
func TestPoolOutcomes(t *testing.T) {
	const b, dummies = 100, 4266
	law := compose.PoolLaw(b, dummies)
	for _, eps := range []float64{.05, .2, .5, 1, 1.3} {
		want, err := accountant.PoolDelta(b, dummies, eps)
		require.NoError(t, err)
		got := law.Delta(eps)
		require.GreaterOrEqual(t, got, want*(1-1e-9), "epsilon %v", eps)
		require.Less(t, got, want*1.1+1e-15, "epsilon %v", eps)
	}
}
