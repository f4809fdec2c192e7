package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// GroupPrivacy returns the guarantee for a person who submits k reports, given that one report is (eps, delta)-private:
//
//	(k·ε, δ·(1 + e^ε + … + e^{(k−1)ε})) = (k·ε, δ·(e^{kε}−1)/(e^ε−1))              (1)
//
// Both are rounded up, by at most a relative 1e-12 while k·ε ≤ 700, and δ is never above 1. The reports may be in one
// batch or in several of one epoch, each with n_min honest reports, among which the person's own reports count
// (docs/proofs/group.md; [DR14], Theorem 2.2, is the case δ = 0). Adding up δ, as for independent releases, is wrong:
// reports in one batch are not independent. k is at most [MaxUsers]. Errors are of type [invalid.FieldError].
//
// [DR14]: https://doi.org/10.1561/0400000042
func GroupPrivacy(eps, delta float64, k uint64) (groupEps, groupDelta float64, err error) {
	switch {
	case !(eps >= 0 && eps <= math.MaxFloat64):
		return 0, 0, invalid.Field("epsilon", text(eps), "a finite number, 0 or more")
	case !(delta >= 0 && delta <= 1):
		return 0, 0, invalid.Field("delta", text(delta), "a number from 0 to 1")
	case k < 1 || k > MaxUsers:
		return 0, 0, invalid.Field("reports", strconv.FormatUint(k, 10), "a whole number from 1 to 1000000000")
	case k == 1:
		return eps, delta, nil
	}
	times := float64(k) * (1 + 2*ulp)
	if delta == 0 {
		return eps * times, 0, nil
	}
	least := math.Max(eps, 0x1p-900) // raising ε only raises δ; 2^-900 keeps above from rounding to 0
	above := math.Expm1(least * times)
	if math.IsInf(above, 1) {
		return eps * times, 1, nil
	}
	return eps * times, math.Min(1, delta*(above/math.Expm1(least)*(1+16*ulp))), nil
}
