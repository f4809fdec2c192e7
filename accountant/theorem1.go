package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// theorem1Delta returns the δ of [BBGN19] (Theorem 1). The blanket must satisfy both
//
//	γ ≥ 14K·ln(2/δ)/((n−1)ε²)   and   γ ≥ 27K/((n−1)ε),   ε ≤ 1
//
// It solves the first for δ, and returns 1 if the second fails. It is rounded up by at most a relative 1e-12.
func theorem1Delta(k uint64, gamma float64, users uint64, eps float64) float64 {
	blanket := gamma * float64(users-1) / float64(k) // mean number of blanket messages per value
	if blanket*eps < 27*(1+8*ulp) {
		return 1
	}
	x := blanket * eps * eps / 14
	return math.Min(1, 2*math.Exp(-x)*(1+16*(1+x)*ulp))
}

// theorem1Gamma returns the γ of [BBGN19] (Theorem 1), rounded up.
func theorem1Gamma(k, users uint64, eps, delta float64) (num, den uint64, err error) {
	need := math.Max(14*math.Log(2/delta)/(eps*eps), 27/eps) * float64(k) * (1 + 1e-12)
	if need >= float64(users-1) {
		enough := decimal.Format(math.Floor(need)+2, 17)
		return 0, 0, invalid.Field("users", strconv.FormatUint(users, 10),
			"at least "+enough+" for this k, epsilon and delta under rule theorem1 (blanket probability below 1)")
	}
	num, den = dyadic(need / float64(users-1))
	return num, den, nil
}
