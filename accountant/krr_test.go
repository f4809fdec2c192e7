package accountant_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/invalid"
)

func TestRevealedMatchesEnumeration(t *testing.T) {
	for _, k := range []int{2, 3} {
		for n := 1; n <= 4; n++ {
			for _, gamma := range []float64{.05, .4, .9} {
				for _, eps := range []float64{0, .1, .5, 1.5} {
					want := 0.0
					if eps < accountant.KRREpsilon0(uint64(k), gamma) {
						want = revealedBrute(k, gamma, n, eps)
					}
					got, err := accountant.KRRDelta(accountant.Revealed, uint64(k), gamma, uint64(n), eps)
					require.NoError(t, err)
					require.InDelta(t, want, got, 1e-9*want+1e-15, "k=%d n=%d γ=%g ε=%g", k, n, gamma, eps)
					require.GreaterOrEqual(t, got, want*(1-1e-14))
				}
			}
		}
	}
}

func TestNoRuleIsBelowTheShuffledMechanism(t *testing.T) {
	for _, k := range []int{2, 3} {
		for n := 1; n <= 4; n++ {
			for _, gamma := range []float64{.1, .4, .8} {
				for _, eps := range []float64{0, .2, .7, 1.5} {
					truth := worstCase(k, gamma, n, eps)
					for _, rule := range []accountant.Rule{accountant.Theorem1, accountant.Revealed} {
						if rule == accountant.Theorem1 && eps > 1 {
							continue
						}
						got, err := accountant.KRRDelta(rule, uint64(k), gamma, uint64(n), eps)
						require.NoError(t, err)
						require.GreaterOrEqual(t, got, truth*(1-1e-14), "%s k=%d n=%d γ=%g ε=%g", rule, k, n, gamma,
							eps)
					}
				}
			}
		}
	}
}

func TestGammaPublishedFigures(t *testing.T) {
	tests := []struct {
		rule     accountant.Rule
		users, k uint64
		eps      float64
		delta    float64
		gamma    float64
		digits   float64 // tolerance: half a unit of the last published digit
	}{
		{accountant.Revealed, 1e4, 4, .5, 1e-6, .0541, 5e-5},
		{accountant.Theorem1, 1e4, 4, .5, 1e-6, .325, 5e-4},
		{accountant.Revealed, 1e6, 10, 1, 1e-8, .000621, 5e-7},
		{accountant.Theorem1, 1e6, 10, 1, 1e-8, .002676, 5e-7},
	}
	for _, tt := range tests {
		num, den, err := accountant.KRRGamma(tt.rule, tt.k, tt.users, tt.eps, tt.delta)
		require.NoError(t, err)
		require.InDelta(t, tt.gamma, float64(num)/float64(den), tt.digits)
	}
}

func TestGammaIsTheSmallestThatMeetsTheTarget(t *testing.T) {
	for _, rule := range []accountant.Rule{accountant.Theorem1, accountant.Revealed} {
		for _, users := range []uint64{2e4, 1e6, 1e9} {
			for _, eps := range []float64{.3, 1} {
				num, den, err := accountant.KRRGamma(rule, 5, users, eps, 1e-6)
				require.NoError(t, err)
				require.Zero(t, den&(den-1), "den is a power of two")
				gamma := float64(num) / float64(den)
				at, err := accountant.KRRDelta(rule, 5, gamma, users, eps)
				require.NoError(t, err)
				require.LessOrEqual(t, at, 1e-6)
				below, err := accountant.KRRDelta(rule, 5, gamma*(1-1e-9), users, eps)
				require.NoError(t, err)
				require.Greater(t, below, 1e-6)
			}
		}
	}
}

func TestGammaFallsBackToLocalPrivacy(t *testing.T) {
	num, den, err := accountant.KRRGamma(accountant.Revealed, 3, 1, 1, 1e-6)
	require.NoError(t, err)
	require.InEpsilon(t, 3/(math.E+2), float64(num)/float64(den), 1e-9)
	require.LessOrEqual(t, accountant.KRREpsilon0(3, float64(num)/float64(den)), 1.0)
}

func TestEpsilonSolvesDelta(t *testing.T) {
	for _, gamma := range []float64{.01, .3, .95} {
		for _, users := range []uint64{1, 50, 1e4, 1e7} {
			for _, delta := range []float64{.1, 1e-6, 1e-30} {
				eps, err := accountant.KRREpsilon(accountant.Revealed, 4, gamma, users, delta)
				require.NoError(t, err)
				eps0 := accountant.KRREpsilon0(4, gamma)
				require.LessOrEqual(t, eps, eps0)
				at, err := accountant.KRRDelta(accountant.Revealed, 4, gamma, users, eps)
				require.NoError(t, err)
				require.LessOrEqual(t, at, delta)
				if eps > 0 && eps < eps0 {
					require.InEpsilon(t, delta, at, 1e-6)
				}
			}
		}
	}
}

func TestHundredMillionUsers(t *testing.T) {
	start := time.Now()
	num, den, err := accountant.KRRGamma(accountant.Revealed, 10, 1e8, 1, 1e-8)
	require.NoError(t, err)
	delta, err := accountant.KRRDelta(accountant.Revealed, 10, float64(num)/float64(den), 1e8, 1)
	require.NoError(t, err)
	require.InEpsilon(t, 1e-8, delta, 1e-6)
	t.Logf("calibrated in %v", time.Since(start))
}

func TestBadArguments(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		field    string
		rule     accountant.Rule
		k, users uint64
		eps      float64
		delta    float64
	}{
		{"rule", "theorem2", 4, 100, 1, 1e-6},
		{"k", accountant.Revealed, 1, 100, 1, 1e-6},
		{"k", accountant.Revealed, 0, 100, 1, 1e-6},
		{"users", accountant.Revealed, 4, 0, 1, 1e-6},
		{"users", accountant.Revealed, 4, 2e9, 1, 1e-6},
		{"epsilon", accountant.Revealed, 4, 100, 0, 1e-6},
		{"epsilon", accountant.Revealed, 4, 100, -1, 1e-6},
		{"epsilon", accountant.Revealed, 4, 100, nan, 1e-6},
		{"epsilon", accountant.Revealed, 4, 100, inf, 1e-6},
		{"epsilon", accountant.Theorem1, 4, 100, 1.5, 1e-6},
		{"delta", accountant.Revealed, 4, 100, 1, 0},
		{"delta", accountant.Revealed, 4, 100, 1, 1},
		{"delta", accountant.Revealed, 4, 100, 1, nan},
		{"users", accountant.Theorem1, 4, 100, .5, 1e-6},
	}
	for _, tt := range tests {
		_, _, err := accountant.KRRGamma(tt.rule, tt.k, tt.users, tt.eps, tt.delta)
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field, "%+v", tt)
		require.Equal(t, tt.field, field.Field)
	}
	for _, gamma := range []float64{0, -1, 1.1, nan} {
		_, err := accountant.KRRDelta(accountant.Revealed, 4, gamma, 100, 1)
		require.ErrorContains(t, err, "gamma")
	}
}

func TestTheoremOneSaysHowManyUsersWouldDo(t *testing.T) {
	_, _, err := accountant.KRRGamma(accountant.Theorem1, 4, 3250, .5, 1e-6)
	require.ErrorContains(t, err, "at least 3251")
	_, _, err = accountant.KRRGamma(accountant.Theorem1, 4, 3252, .5, 1e-6)
	require.NoError(t, err)
}

// If γ is close to 1, errors depend on 1−γ: KRRGamma must keep the digits of 1−γ too.
func TestGammaNextToOne(t *testing.T) {
	for _, eps := range []float64{1e-3, 1e-6, 1e-9, 1e-12} {
		num, den, err := accountant.LocalGamma(1<<20, eps)
		if eps < 1e-8 {
			require.ErrorContains(t, err, "rounds to 1")
			continue
		}
		require.NoError(t, err)
		gamma := float64(num) / float64(den)
		require.LessOrEqual(t, accountant.KRREpsilon0(1<<20, gamma), eps)
		if eps > 1e-7 {
			require.InEpsilon(t, eps, accountant.KRREpsilon0(1<<20, gamma), 1e-3)
		}
	}
}
