package accountant_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// othersCurve returns the ε that are the given ascending multiples of ε₀, and OthersCurve at these ε.
func othersCurve(t *testing.T, users int, gamma float64, shares []float64) (eps, curve []float64) {
	t.Helper()
	for _, share := range shares {
		eps = append(eps, share*accountant.KRREpsilon0(2, gamma))
	}
	curve, err := accountant.OthersCurve(gamma, uint64(users), eps)
	require.NoError(t, err)
	require.Len(t, curve, len(eps))
	return eps, curve
}

// For up to 300 users OthersCurve must equal the δ found by enumerating every input and outcome, because each of its
// intervals covers one input.
func TestOthersCurveIsTheTruthForFewUsers(t *testing.T) {
	shares := []float64{0, 1e-6, .02, .1, .3, .6, .9, .999, 1, 2}
	for _, users := range []int{1, 2, 3, 10, 40, 150} {
		for _, gamma := range []float64{1e-4, .01, .1, .3, .7, .99} {
			eps, curve := othersCurve(t, users, gamma, shares)
			for i, e := range eps {
				want, _ := othersTruth(gamma/2, users, e)
				require.GreaterOrEqual(t, curve[i], want*(1-2e-11)-1e-27, "n=%d γ=%g ε=%g", users, gamma, e)
				require.LessOrEqual(t, curve[i], want*(1+1e-9)+1e-14, "n=%d γ=%g ε=%g", users, gamma, e)
			}
		}
	}
}

// OthersCurve must never be below rule others of KRRDelta, which evaluates each ε separately by another formula. For δ
// between 1e-12 and .1, its ε may be at most .4 % larger, or larger by a thousandth of the ε at δ = 1e-6.
func TestOthersCurveIsNotBelowTheRule(t *testing.T) {
	users := []uint64{1999, 30_000, 100_000_000}
	if stattest.Long {
		users = append(users, 100, 300, 600, 1000, 2002, 5000, 10_000, 300_000, 1_000_000, 10_000_000, 1_000_000_000)
	}
	for _, n := range users {
		for _, claim := range []float64{.03, .2, 1} {
			num, den, err := accountant.KRRGamma(accountant.Others, 2, n, claim, 1e-6)
			require.NoError(t, err)
			gamma, eps := float64(num)/float64(den), []float64{}
			rule := func(eps float64) float64 {
				delta, err := accountant.KRRDelta(accountant.Others, 2, gamma, n, eps)
				require.NoError(t, err)
				return delta
			}
			for _, share := range []float64{0, .01, .1, .3, .5, .8, 1, 1.2, 1.4, 2} {
				eps = append(eps, share*claim, math.Max(share*claim*1.004, share*claim+claim/1000))
			}
			curve, err := accountant.OthersCurve(gamma, n, eps)
			require.NoError(t, err)
			seen := 0
			for i := 0; i < len(eps); i += 2 {
				want := rule(eps[i])
				require.GreaterOrEqual(t, curve[i], want*(1-1e-10), "n=%d claim=%g ε=%g", n, claim, eps[i])
				if want >= 1e-12 && want <= .1 {
					seen++
					require.LessOrEqual(t, curve[i+1], want, "n=%d claim=%g ε=%g", n, claim, eps[i])
				}
			}
			require.Greater(t, seen, 4)
		}
	}
}

func TestOthersCurveRefusesWhatTheRuleRefuses(t *testing.T) {
	for _, gamma := range []float64{-1, 0, 1.5, math.NaN()} {
		_, err := accountant.OthersCurve(gamma, 100, []float64{1})
		require.ErrorContains(t, err, "invalid gamma")
	}
	_, err := accountant.OthersCurve(.5, 0, []float64{1})
	require.ErrorContains(t, err, "invalid users")
	curve, err := accountant.OthersCurve(1, 100, []float64{0, 1})
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0}, curve, "no value is sent")
}
