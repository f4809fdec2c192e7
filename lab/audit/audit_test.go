package audit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/lab/audit"
)

// run audits a case with 3,000 trials, and doubles them, up to 24,000, until the audit reaches its goal, so that bad
// luck in few trials fails no test. `lab audit` uses 40,000 trials.
func run(t *testing.T, c audit.Case, confidence float64) *audit.Result {
	for trials := 3000; ; trials *= 2 {
		r, err := c.Run(t.Context(), nil, audit.Options{Trials: trials, Confidence: confidence})
		require.NoError(t, err, c.Protocol)
		t.Logf("%s, %s, %s, %s: found %.3f, claimed %.3g, power %.2f", c.Protocol, c.Fault, c.View, c.Attack, r.Lower,
			r.Claimed, r.Power)
		if r.Enough() || r.Refuted || trials > 20_000 {
			return r
		}
	}
}

// TestShippedProtocolsKeepTheirClaims: no audit of a shipped protocol may refute its claim, and each must find at least
// half of the claimed ε. Chance refutes a true claim once in 10⁴ runs of a case. The test then repeats the audit with
// an error probability of 10⁻⁸.
func TestShippedProtocolsKeepTheirClaims(t *testing.T) {
	for _, c := range audit.Native() {
		r := run(t, c, .9999)
		if r.Refuted {
			r = run(t, c, 1-1e-8)
		}
		require.True(t, r.Enough(), c.Protocol)
	}
}

// TestFaultsAreFound: the audit must refute the claim of every case with a planted fault.
func TestFaultsAreFound(t *testing.T) {
	for _, c := range audit.Faulty() {
		require.True(t, run(t, c, .9999).Refuted, "%s, %s", c.Protocol, c.Fault)
	}
}

// TestClopperPearson compares the bounds for 0 and for n hits with closed forms. For other numbers of hits it compares
// them with binomial tails and with a normal approximation.
func TestClopperPearson(t *testing.T) {
	const alpha = 1e-3
	lower, upper := audit.ClopperPearson(0, 50, alpha)
	require.Zero(t, lower)
	require.InEpsilon(t, 1-math.Pow(alpha, 1./50), upper, 1e-8)
	lower, upper = audit.ClopperPearson(50, 50, alpha)
	require.InEpsilon(t, math.Pow(alpha, 1./50), lower, 1e-8)
	require.Equal(t, 1., upper)
	lower, upper = audit.ClopperPearson(3, 10, alpha)
	tail := func(from, to int, p float64) (sum float64) {
		for k := from; k <= to; k++ {
			ways := 1.0
			for i := range k {
				ways *= float64(10-i) / float64(i+1)
			}
			sum += ways * math.Pow(p, float64(k)) * math.Pow(1-p, float64(10-k))
		}
		return sum
	}
	require.InEpsilon(t, alpha, tail(3, 10, lower), 1e-6)
	require.InEpsilon(t, alpha, tail(0, 3, upper), 1e-6)
	lower, upper = audit.ClopperPearson(500_000, 1_000_000, alpha)
	require.InDelta(t, .5-3.09*5e-4, lower, 2e-5)
	require.InDelta(t, .5+3.09*5e-4, upper, 2e-5)
}
