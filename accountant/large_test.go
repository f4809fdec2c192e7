package accountant_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
)

// TestOneUserAtLargeEpsilon checks that one user alone has δ(ε) = 1−γ − (e^ε−1)·γ/K. If e^ε is near 2^53 or above,
// adding the other value's weight must not round away the small difference that δ is.
func TestOneUserAtLargeEpsilon(t *testing.T) {
	for _, k := range []uint64{2, 7, 1 << 30} {
		for eps := 1.0; eps < 41; eps++ {
			gamma := float64(k) / (math.Exp(eps+1) + float64(k))
			want := 1 - gamma - math.Expm1(eps)*gamma/float64(k)
			for _, rule := range []accountant.Rule{accountant.Revealed, accountant.Exact} {
				got, err := accountant.KRRDelta(rule, k, gamma, 1, eps)
				require.NoError(t, err)
				require.GreaterOrEqual(t, got, want*(1-1e-12), "%s, k = %d, ε = %g", rule, k, eps)
				if rule == accountant.Exact {
					require.InEpsilon(t, want, got, 1e-9, "k = %d, ε = %g", k, eps)
				}
			}
		}
	}
}

// TestGammaAtHugeEpsilon checks that γ stays valid at huge ε. From ε = 710 on, e^ε overflows float64.
func TestGammaAtHugeEpsilon(t *testing.T) {
	for _, eps := range []float64{60, 100, 709, 710, 1e300} {
		num, den, err := accountant.KRRGamma(accountant.Exact, 4, 1000, eps, 1e-6)
		require.NoError(t, err)
		delta, err := accountant.KRRDelta(accountant.Exact, 4, float64(num)/float64(den), 1000, eps)
		require.NoError(t, err)
		require.LessOrEqual(t, delta, 1e-6)
	}
}
