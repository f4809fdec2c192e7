package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// Delta returns δ(ε). value is at most 1, and 0 if ε ≥ ε₀. raw is the bound alone, +Inf if it proves nothing. Both
// are rounded up by at most a relative 1e-9.
//
// Errors are of type [invalid.FieldError], as in all methods of Amplification.
func (a Amplification) Delta(eps float64) (value, raw float64, err error) {
	if err := a.Validate(); err != nil {
		return 0, 0, err
	}
	if !(eps >= 0 && eps <= 100) {
		return 0, 0, invalid.Field("epsilon", text(eps), "a number from 0 to 100")
	}
	raw = a.raw(eps)
	if eps >= a.Epsilon0 {
		return 0, raw, nil
	}
	return math.Min(1, raw), raw, nil
}

// Epsilon returns ε(δ). raw is the smallest ε at which the bound alone is at most delta, +Inf if there is none up to
// ε = 40 + ε₀. value is min(raw, ε₀). Both are rounded up by at most a relative 1e-9.
func (a Amplification) Epsilon(delta float64) (value, raw float64, err error) {
	if err := a.Validate(); err != nil {
		return 0, 0, err
	}
	if err := a.checkDelta(delta); err != nil {
		return 0, 0, err
	}
	raw = a.rawEpsilon(delta)
	return math.Min(raw, a.Epsilon0), raw, nil
}

func (a Amplification) rawEpsilon(delta float64) float64 {
	top := a.Epsilon0
	for a.raw(top) > delta {
		if top *= 1.5; top > a.Epsilon0+maxEpsilon0 {
			return math.Inf(1)
		}
	}
	return smallest(a.raw, delta, top)
}

// SolveEpsilon0 returns the largest ε₀ for which the mechanism is (eps, delta)-DP, rounded down by at most a relative
// 1e-9. raw is the result of the bound alone, or 0 if no ε₀ meets it. value is max(raw, eps), because ε₀ = ε always
// suffices. The field Epsilon0 is ignored.
func (a Amplification) SolveEpsilon0(eps, delta float64) (value, raw float64, err error) {
	a.Epsilon0 = 0.1
	if err := a.check(eps, delta); err != nil {
		return 0, 0, err
	}
	top := float64(maxEpsilon0)
	if a.Bound == EFMRTT19 {
		top = math.Nextafter(0.5, 0)
	}
	// smallest needs a function that does not rise. The bound falls as x = 1/ε₀ grows.
	at := func(x float64) float64 {
		b := a
		b.Epsilon0 = math.Min(top, 1/x)
		return b.raw(eps)
	}
	if at(1/top) <= delta {
		return math.Max(top, eps), top, nil
	}
	low := 1e-9 * math.Min(eps, 1)
	if at(1/low) > delta {
		return eps, 0, nil
	}
	raw = 1 / smallest(at, delta, 1/low) * (1 - 4*ulp)
	return math.Max(raw, eps), raw, nil
}

// SolveUsers returns the smallest number of users for which the mechanism is (eps, delta)-DP. raw is by the
// amplification bound alone. value also uses that one user suffices for eps ≥ ε₀, by the local randomizer
// alone. The field Users is ignored. More than [MaxUsers] is an error.
func (a Amplification) SolveUsers(eps, delta float64) (value, raw uint64, err error) {
	a.Users = MaxUsers
	if err := a.check(eps, delta); err != nil {
		return 0, 0, err
	}
	if a.raw(eps) > delta {
		if eps >= a.Epsilon0 {
			return 1, 0, nil
		}
		return 0, 0, invalid.Field("epsilon", text(eps),
			"a larger epsilon or delta, or a smaller eps0: "+strconv.Itoa(MaxUsers)+
				" users are not enough under bound "+string(a.Bound))
	}
	low, high := uint64(0), uint64(MaxUsers) // low users are too few, or low is 0
	if a.Bound == EFMRTT19 {
		low = 999
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		b := a
		if b.Users = mid; b.raw(eps) <= delta {
			high = mid
		} else {
			low = mid
		}
	}
	if eps >= a.Epsilon0 {
		return 1, high, nil
	}
	return high, high, nil
}

// check validates the fields and (eps, delta) of a search.
func (a Amplification) check(eps, delta float64) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if !(eps > 0 && eps <= maxEpsilon0) {
		return invalid.Field("epsilon", text(eps), "a number above 0, at most 40")
	}
	return a.checkDelta(delta)
}
