package accountant_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
)

// bits returns the distribution of the number of ones among shuffled reports. zeros users have value 0 and ones users
// have value 1. Each report is flipped with probability gamma/2.
func bits(zeros, ones int, gamma float64) []float64 {
	law := []float64{1}
	for i := range zeros + ones {
		one := gamma / 2
		if i >= zeros {
			one = 1 - gamma/2
		}
		next := make([]float64, len(law)+1)
		for j, pr := range law {
			next[j] += pr * (1 - one)
			next[j+1] += pr * one
		}
		law = next
	}
	return law
}

// groupTruth returns the largest divergence at eps over the other users' values, if k of the n reports are from one
// person.
func groupTruth(n, k int, gamma, eps float64, step int) (worst float64) {
	for ones := 0; ones <= n-k; ones += step {
		p, q := bits(n-k-ones, ones+k, gamma), bits(n-ones, ones, gamma)
		sum := 0.0
		for j := range p {
			sum += math.Max(0, p[j]-math.Exp(eps)*q[j])
		}
		worst = math.Max(worst, sum)
	}
	return worst
}

// TestGroupPrivacyHoldsWhereAddingUpDoesNot enumerates batches with several reports of one person. GroupPrivacy's δ
// must be at least the true δ, although k·δ is below it.
func TestGroupPrivacyHoldsWhereAddingUpDoesNot(t *testing.T) {
	const eps, delta = 2, 1e-6
	num, den, err := accountant.KRRGamma(accountant.Others, 2, 500, eps, delta)
	require.NoError(t, err)
	gamma := float64(num) / float64(den)
	require.LessOrEqual(t, groupTruth(500, 1, gamma, eps, 499), delta)
	truth := groupTruth(500, 5, gamma, 5*eps, 99)
	require.InEpsilon(t, 8.0e-5, truth, .01)
	groupEps, groupDelta, err := accountant.GroupPrivacy(eps, delta, 5)
	require.NoError(t, err)
	require.InEpsilon(t, 5*eps, groupEps, 1e-14)
	require.Less(t, truth, groupDelta)
	require.Greater(t, truth, 16*5*delta, "k·δ is not what holds")
}

// TestGroupPrivacyBySmallSizes checks small batches: given the exact δ of one report, the result must never be below
// the true δ of a group.
func TestGroupPrivacyBySmallSizes(t *testing.T) {
	below := 0
	for _, gamma := range []float64{.2, .5, .8} {
		for _, eps := range []float64{0, .1, .3, .7} {
			delta := groupTruth(9, 1, gamma, eps, 1)
			for k := 2; k <= 6; k++ {
				groupEps, groupDelta, err := accountant.GroupPrivacy(eps, delta, uint64(k))
				require.NoError(t, err)
				truth := groupTruth(9, k, gamma, groupEps, 1)
				require.LessOrEqual(t, truth, groupDelta+1e-15, "γ=%g ε=%g k=%d", gamma, eps, k)
				if truth > float64(k)*delta {
					below++
				}
			}
		}
	}
	require.Positive(t, below, "k·δ is below the truth somewhere")
}

// TestGroupPrivacyRoundsUp compares the result with the sum of powers of e^ε in rational arithmetic: it must never be
// below.
func TestGroupPrivacyRoundsUp(t *testing.T) {
	for _, eps := range []float64{0, 5e-324, 1e-300, 1e-17, 1e-9, .1, 1, 2.5, 30} {
		for _, k := range []uint64{2, 3, 5, 20} {
			const delta = 1e-40
			groupEps, groupDelta, err := accountant.GroupPrivacy(eps, delta, k)
			require.NoError(t, err)
			exact, power := bigOf(0), bigOf(delta)
			for range k {
				exact.Add(exact, power)
				power.Mul(power, bigExp(eps))
			}
			want, _ := exact.Float64()
			product := new(big.Float).Mul(bigOf(eps), bigOf(float64(k)))
			require.GreaterOrEqual(t, bigOf(groupEps).Cmp(product), 0, "ε=%g k=%d", eps, k)
			if want >= 1 {
				require.EqualValues(t, 1, groupDelta)
				continue
			}
			require.GreaterOrEqual(t, bigOf(groupDelta).Cmp(exact), 0, "ε=%g k=%d", eps, k)
			require.LessOrEqual(t, groupDelta, want*(1+1e-12), "ε=%g k=%d", eps, k)
		}
	}
}

// TestGroupPrivacyAtItsEdges checks that invalid δ, ε and numbers of reports are errors, and that a bound above 1
// becomes δ = 1.
func TestGroupPrivacyAtItsEdges(t *testing.T) {
	for _, bad := range []struct {
		eps, delta float64
		k          uint64
		want       string
	}{
		{math.NaN(), 0, 1, "epsilon NaN"}, {-1, 0, 1, "epsilon -1"}, {math.Inf(1), 0, 1, "epsilon +Inf"},
		{1, math.NaN(), 1, "delta NaN"}, {1, -1e-9, 1, "delta -1e-9"}, {1, 1.1, 1, "delta 1.1"},
		{1, 0, 0, "reports 0"}, {1, 0, accountant.MaxUsers + 1, "reports 1000000001"},
	} {
		_, _, err := accountant.GroupPrivacy(bad.eps, bad.delta, bad.k)
		require.ErrorContains(t, err, bad.want)
	}
	for _, c := range []struct {
		eps, delta float64
		k          uint64
		want       float64
	}{
		{.3, 1e-6, 1, 1e-6}, {800, 1e-6, 2, 1}, {800, 0, 2, 0}, {0, .75, 2, 1}, {0, 1, 1, 1},
	} {
		_, delta, err := accountant.GroupPrivacy(c.eps, c.delta, c.k)
		require.NoError(t, err)
		require.Equal(t, c.want, delta, "%+v", c)
	}
	eps, _, err := accountant.GroupPrivacy(math.MaxFloat64, 0, 2)
	require.NoError(t, err)
	require.True(t, math.IsInf(eps, 1))
}
