package accountant_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// othersTruth returns δ(ε) of two-valued randomized response for the worst values of the other users, and the number of
// ones among these values. It enumerates every number of ones and every outcome, except flips less likely than 1e-30.
func othersTruth(f float64, users int, eps float64) (worst float64, at int) {
	flips := make([][]float64, users) // flips[m]: distribution of the number of flips among m users
	flips[0] = []float64{1}
	for m := 1; m < users; m++ {
		law := append(append([]float64{}, flips[m-1]...), 0)
		for j := len(law) - 1; j > 0; j-- {
			law[j] = law[j]*(1-f) + law[j-1]*f
		}
		law[0] *= 1 - f
		if law[len(law)-1] < 1e-30 {
			law = law[:len(law)-1]
		}
		flips[m] = law
	}
	for ones := range users {
		away, here := flips[ones], flips[users-1-ones]
		law := make([]float64, len(away)+len(here)+1) // of the reported ones: kept ones plus flipped zeros
		for i, p := range away {
			for j, q := range here {
				law[1+len(away)-1-i+j] += p * q
			}
		}
		sum := 0.0
		for j := 1; j < len(law); j++ {
			p, q := (1-f)*law[j-1]+f*law[j], f*law[j-1]+(1-f)*law[j]
			sum += math.Max(0, p-math.Exp(eps)*q)
		}
		if sum > worst {
			worst, at = sum, ones
		}
	}
	return worst, at
}

// othersBig is othersTruth with 200-bit numbers, for few users.
func othersBig(gamma float64, users int, eps float64) float64 {
	f := new(big.Float).Quo(bigOf(gamma), bigOf(2))
	stay, e, worst := new(big.Float).Sub(bigOf(1), f), bigExp(eps), bigOf(0)
	add := func(law []*big.Float, one *big.Float) []*big.Float { // one: probability that the added report is 1
		out := []*big.Float{bigOf(0)}
		for range law {
			out = append(out, bigOf(0))
		}
		zero := new(big.Float).Sub(bigOf(1), one)
		for i, p := range law {
			out[i].Add(out[i], new(big.Float).Mul(p, zero))
			out[i+1].Add(out[i+1], new(big.Float).Mul(p, one))
		}
		return out
	}
	for ones := range users {
		law := []*big.Float{bigOf(1)}
		for i := range users - 1 {
			if i < ones {
				law = add(law, stay)
			} else {
				law = add(law, f)
			}
		}
		sum, with, without := bigOf(0), add(law, stay), add(law, f)
		for i, q := range without {
			if d := new(big.Float).Sub(with[i], new(big.Float).Mul(e, q)); d.Sign() > 0 {
				sum.Add(sum, d)
			}
		}
		if sum.Cmp(worst) > 0 {
			worst = sum
		}
	}
	value, _ := worst.Float64()
	return value
}

// If γ is close to 1, the flip probability f is close to ½. The result must not lose the digits of the differences 1−2f
// and 1−4f(1−f).
func TestOthersNextToOne(t *testing.T) {
	for _, users := range []int{1, 2, 3, 6, 15} {
		for _, truth := range []float64{1e-3, 1e-6, 1e-9, 1e-12, 1e-15} {
			gamma := 1 - truth
			for _, share := range []float64{0, .01, .3, .9} {
				eps := share * accountant.KRREpsilon0(2, gamma)
				want := othersBig(gamma, users, eps)
				got := others(t, gamma, users, eps)
				require.GreaterOrEqual(t, got, want, "n=%d 1−γ=%g ε=%g: %g", users, truth, eps, got/want-1)
				require.LessOrEqual(t, got, want*(1+1e-9)+1e-25, "n=%d 1−γ=%g ε=%g: %g", users, truth, eps, got/want-1)
			}
		}
	}
}

func others(t *testing.T, gamma float64, users int, eps float64) float64 {
	delta, err := accountant.KRRDelta(accountant.Others, 2, gamma, uint64(users), eps)
	require.NoError(t, err)
	return delta
}

// For up to 8 users, rule others must equal enumeration of every outcome for all inputs of all users, in both
// directions.
func TestOthersMatchesEnumeration(t *testing.T) {
	for users := 1; users <= 8; users++ {
		for _, gamma := range []float64{1e-6, .01, .05, .2, .4, .8, .99} {
			for _, eps := range []float64{0, 1e-9, .01, .2, .7, 1.5, 4} {
				want, got := worstCase(2, gamma, users, eps), others(t, gamma, users, eps)
				require.InDelta(t, want, got, 2e-11, "n=%d γ=%g ε=%g", users, gamma, eps)
				require.GreaterOrEqual(t, got, want-1e-15, "n=%d γ=%g ε=%g", users, gamma, eps)
			}
		}
	}
}

// othersPoints calls f for combinations of users (2 to 300), γ and ε.
func othersPoints(f func(users int, gamma, eps float64)) {
	for _, users := range []int{2, 3, 10, 40, 150, 300} {
		for _, gamma := range []float64{1e-4, .01, .1, .3, .7} {
			eps0 := accountant.KRREpsilon0(2, gamma)
			for _, share := range []float64{0, 1e-6, .02, .1, .3, .6, .9, .999} {
				f(users, gamma, share*eps0)
			}
		}
	}
}

// For up to 300 users, the rule's δ must equal the enumerated δ to a relative 1e-9, and so must the calibrated γ.
func TestOthersIsTheTruthForFewUsers(t *testing.T) {
	inside := 0
	othersPoints(func(users int, gamma, eps float64) {
		want, at := othersTruth(gamma/2, users, eps)
		got := others(t, gamma, users, eps)
		require.GreaterOrEqual(t, got, want*(1-1e-12)-1e-27, "n=%d γ=%g ε=%g", users, gamma, eps)
		require.LessOrEqual(t, got, want*(1+1e-9)+1e-14, "n=%d γ=%g ε=%g", users, gamma, eps)
		if at > 0 && at < users-1 && want > 1e-12 {
			inside++
		}
	})
	require.Positive(t, inside, "the worst input is not always a corner")
}

// The inputs where all other users hold 1 are not always the worst: for 300 users other inputs give a larger δ, and the
// rule must cover them.
func TestOthersCornerIsNotABound(t *testing.T) {
	const users, eps = 300, .3
	num, den, err := accountant.KRRGamma(accountant.Others, 2, users, eps, 1e-6)
	require.NoError(t, err)
	want, at := othersTruth(float64(num)/float64(den)/2, users, eps)
	require.InEpsilon(t, 1e-6, want, 1e-8)
	require.Greater(t, at, users*9/10)
	require.Less(t, at, users-1)
}

// A γ one percent below the calibrated γ must exceed the claimed δ. Otherwise the rule adds more noise than necessary.
func TestOthersCatchesTooLittleNoise(t *testing.T) {
	for _, users := range []int{20, 100, 300} {
		for _, eps := range []float64{.3, 1} {
			num, den, err := accountant.KRRGamma(accountant.Others, 2, uint64(users), eps, 1e-4)
			require.NoError(t, err)
			gamma := float64(num) / float64(den)
			held, _ := othersTruth(gamma/2, users, eps)
			require.LessOrEqual(t, held, 1e-4)
			broken, _ := othersTruth(gamma/1.01/2, users, eps)
			require.Greater(t, broken, 1e-4, "n=%d ε=%g", users, eps)
		}
	}
}

// From 2000 users on, the rule bounds intervals of inputs together. That must raise δ by at most 1 %.
func TestOthersIntervals(t *testing.T) {
	counts := []int{1900, 2500}
	if stattest.Long {
		counts = append(counts, 5000)
	}
	for _, users := range counts {
		for _, eps := range []float64{.1, .3, 1} {
			num, den, err := accountant.KRRGamma(accountant.Others, 2, uint64(users), eps, 1e-6)
			require.NoError(t, err)
			want, _ := othersTruth(float64(num)/float64(den)/2, users, eps)
			require.LessOrEqual(t, want, 1e-6)
			require.GreaterOrEqual(t, want, .995e-6, "n=%d ε=%g", users, eps)
		}
	}
}

func TestOthersIsMonotone(t *testing.T) {
	for _, users := range []int{1, 2, 30, 900, 1e6} {
		for _, gamma := range []float64{1e-3, .05, .4} {
			last := 2.0
			for i := range 40 {
				eps := accountant.KRREpsilon0(2, gamma) * float64(i) / 40
				delta := others(t, gamma, users, eps)
				require.LessOrEqual(t, delta, last*(1+1e-9), "n=%d γ=%g ε=%g", users, gamma, eps)
				last = delta
				require.LessOrEqual(t, others(t, gamma*1.01, users, eps), delta*(1+1e-9)+1e-14)
				if users > 1 && users <= 900 { // for more users, intervals make this true only to a percent
					require.GreaterOrEqual(t, others(t, gamma, users-1, eps), delta*(1-1e-9)-1e-14)
				}
			}
		}
	}
}

// Rule others reveals less to the adversary than rule exact, so its δ and γ must never be above those of exact.
func TestOthersIsNotAboveExact(t *testing.T) {
	for _, users := range []uint64{1, 10, 1e3, 1e4, 1e6, 1e9} {
		for _, eps := range []float64{1e-3, .1, 1, 5} {
			for _, delta := range []float64{1e-3, 1e-6, 1e-200} {
				gamma := func(rule accountant.Rule) float64 {
					num, den, err := accountant.KRRGamma(rule, 2, users, eps, delta)
					require.NoError(t, err)
					return float64(num) / float64(den)
				}
				require.LessOrEqual(t, gamma(accountant.Others), gamma(accountant.Exact)*(1+1e-6), "n=%d ε=%g δ=%g",
					users, eps, delta)
			}
		}
	}
}

// The root mean squared error of a count must meet the targets, if all n users are honest (h = 1).
func TestOthersCountError(t *testing.T) {
	for _, tt := range []struct {
		users  uint64
		eps    float64
		target float64
	}{{1e4, 1, 5.86}, {1e4, .3, 14.5}, {1e4, .1, 37.9}, {1e6, .1, 37.9}} {
		num, den, err := accountant.KRRGamma(accountant.Others, 2, tt.users, tt.eps, 1e-6)
		require.NoError(t, err)
		f := float64(num) / float64(den) / 2
		rmse := math.Sqrt(float64(tt.users)*f*(1-f)) / (1 - 2*f)
		t.Logf("n = %d, ε = %g, δ = 1e-6: RMSE %.3f, at most %g", tt.users, tt.eps, rmse, tt.target)
		require.LessOrEqual(t, rmse, tt.target)
	}
}

func TestOthersIsFast(t *testing.T) {
	for _, users := range []uint64{1e4, 1e6, 1e8, 1e9} {
		for _, eps := range []float64{1e-3, .01, .1, 1} {
			num, den, err := accountant.KRRGamma(accountant.Others, 2, users, eps, 1e-6)
			require.NoError(t, err)
			best := time.Hour
			for range 3 {
				start := time.Now()
				_, err = accountant.KRRDelta(accountant.Others, 2, float64(num)/float64(den), users, eps)
				require.NoError(t, err)
				best = min(best, time.Since(start))
			}
			t.Logf("n = %g, ε = %g: %v", float64(users), eps, best)
			require.Less(t, best, 100*time.Millisecond, "n=%d ε=%g", users, eps)
		}
	}
}

func TestOthersIsForTwoValues(t *testing.T) {
	_, err := accountant.KRRDelta(accountant.Others, 3, .1, 100, 1)
	require.ErrorContains(t, err, "k = 3")
	_, _, err = accountant.KRRGamma(accountant.Others, 3, 100, 1, 1e-6)
	require.ErrorContains(t, err, "others is proven for k = 2 only")
	a := accountant.Amplification{Mechanism: accountant.KRR, Bound: accountant.OthersBits, Epsilon0: 1, K: 3,
		Users: 100}
	_, _, err = a.Epsilon(1e-6)
	require.ErrorContains(t, err, "one valid for mechanism krr with k = 3: hoeffding, bennett, revealed, exact")
	a.K = 2
	eps, _, err := a.Epsilon(1e-6)
	require.NoError(t, err)
	a.Bound = accountant.ExactBits
	exact, _, err := a.Epsilon(1e-6)
	require.NoError(t, err)
	require.Less(t, eps, exact)
}

// TestEpsilonBeyondExp: where e^ε exceeds float64, no rule may find that reports without any blanket are private. The
// search for γ must then return the smallest γ that a task can have, 2⁻⁶², which gives pure local privacy.
func TestEpsilonBeyondExp(t *testing.T) {
	for _, rule := range []accountant.Rule{accountant.Revealed, accountant.Exact, accountant.Others} {
		for _, eps := range []float64{709, 710, 1e5, math.MaxFloat64} {
			num, den, err := accountant.KRRGamma(rule, 2, 1000, eps, 1e-6)
			require.NoError(t, err)
			require.Equal(t, []uint64{1, 1 << 62}, []uint64{num, den}, "%s, ε = %g", rule, eps)
		}
	}
}

// TestLocalGammaOfTinyEpsilon: where γ rounds to 1, reports hold nothing, so the error must say which ε₀ is possible.
func TestLocalGammaOfTinyEpsilon(t *testing.T) {
	for _, eps0 := range []float64{5e-324, 1e-309, 1e-100, 1e-17} {
		_, _, err := accountant.LocalGamma(4, eps0)
		require.ErrorContains(t, err, "want a larger number")
	}
	num, den, err := accountant.LocalGamma(4, 1e-9)
	require.NoError(t, err)
	require.Less(t, num, den)
}
