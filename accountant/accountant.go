// Package accountant bounds the privacy of shuffled randomizers: the (ε, δ) guarantee that shuffling gives a local
// randomizer with ε₀.
//
// The measure is the hockey-stick divergence of two output distributions P and Q,
//
//	H(ε) = Σ (P(y) − e^ε·Q(y))₊,   x₊ = max(x, 0)                      (1)
//
// and a mechanism is (ε, δ)-DP exactly when H(ε) ≤ δ for every pair of neighbouring inputs. Neighbours differ by the
// substitution of one user's input. Participation is not protected. The adversary sees all shuffled messages and
// knows every other user's input.
//
// K-ary randomized response reports x with probability 1−γ, else a uniform one of the K values (the blanket):
//
//	Pr[R(x)=y] = (1−γ)·1{x=y} + γ/K,   γ = K/(e^ε₀+K−1)                 (2)
//
// [KRRDelta], [KRREpsilon] and [KRRGamma] relate γ, the number of users and (ε, δ) under one of the [Rule]s. Each
// rule is a proven upper bound, and so is every result: δ, ε and γ are rounded up, by at most a relative 1e-9.
//
// Limits: users is at most [MaxUsers] and k at most [MaxK]. A δ below 1e-290 is reported as 1e-290. The package is
// linked into doona.wasm and therefore imports very little.
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Rule names a proven upper bound on the privacy loss of shuffled K-ary randomized response.
type Rule string

// The rules, from the loosest to the tightest.
const (
	// Theorem1 is the closed form of [BBGN19] (Theorem 1), for ε ≤ 1.
	Theorem1 Rule = "theorem1"
	// Revealed is the exact divergence when every user's blanket bit is revealed, the
	// target's too. Any ε.
	Revealed Rule = "revealed"
	// Exact is the exact divergence when the blanket bits of all users except the target are revealed ([BBGN19], Lemma
	// 8: a sum over the blanket. It is an equality for this adversary). Any ε.
	Exact Rule = "exact"
	// Others is the divergence when nobody's blanket bit is revealed, at the worst inputs of the
	// other users (docs/proofs/two-valued.md). K = 2 only. Any ε.
	Others Rule = "others"
)

// Tightest returns the rule with the smallest γ: [Others] for two values, else [Exact].
func Tightest(k uint64) Rule {
	if k == 2 {
		return Others
	}
	return Exact
}

// Limits of the arguments. Within them the stated rounding holds.
const (
	MaxUsers = 1_000_000_000 // largest number of users
	MaxK     = 1 << 40       // largest domain of a randomizer
)

// tiny is added to every δ, unless pure local privacy makes it zero. It covers underflow.
const tiny = 1e-290

// KRRDelta returns an upper bound on δ(ε) of k-ary randomized response with blanket probability gamma, after the
// messages of all users are shuffled, at eps = ε ≥ 0.
//
// It is 0 if ε ≥ ε₀ (pure local privacy), and never above 1. It is rounded up: by at most a relative 1e-9 at the ε of
// a calibrated task, and by 1e-6 in corners (δ below 1e-69, γ close to 1, ε thousands of times below the calibrated
// one). It makes one evaluation and no search, so that a client can check a claim. Under [Theorem1] it is 1 if the
// theorem does not apply.
//
// Errors are of type [invalid.FieldError].
func KRRDelta(rule Rule, k uint64, gamma float64, users uint64, eps float64) (float64, error) {
	if err := checkKRR(rule, k, users); err != nil {
		return 0, err
	}
	if err := checkGamma(gamma); err != nil {
		return 0, err
	}
	if err := checkEpsilon(rule, eps); err != nil {
		return 0, err
	}
	return krrDelta(rule, k, gamma, users, eps), nil
}

// krrDelta is KRRDelta for arguments known to be valid.
func krrDelta(rule Rule, k uint64, gamma float64, users uint64, eps float64) float64 {
	if eps >= KRREpsilon0(k, gamma) {
		return 0
	}
	if math.IsInf(math.Exp(eps), 1) { // The rules compute with e^ε. γ is below K·e^−709, so reports hide nothing.
		return 1
	}
	var delta float64
	switch rule {
	case Theorem1:
		delta = theorem1Delta(k, gamma, users, eps)
	case Revealed:
		delta = revealedDelta(k, gamma, users, eps)
	case Others:
		delta = othersDelta(gamma, users, eps)
	default:
		delta = exactDelta(k, gamma, users, eps)
	}
	return math.Min(1, delta+tiny)
}

// KRREpsilon returns the smallest ε for which [KRRDelta] is at most delta, rounded up by at most a relative 1e-11. It
// is never above ε₀: a bound that proves nothing falls back to local privacy. Under [Theorem1] an answer above 1
// becomes ε₀ too.
//
// Errors are of type [invalid.FieldError].
func KRREpsilon(rule Rule, k uint64, gamma float64, users uint64, delta float64) (float64, error) {
	if err := checkKRR(rule, k, users); err != nil {
		return 0, err
	}
	if err := checkGamma(gamma); err != nil {
		return 0, err
	}
	if err := checkDelta(delta); err != nil {
		return 0, err
	}
	eps0 := KRREpsilon0(k, gamma)
	top := eps0
	if rule == Theorem1 {
		top = math.Min(top, 1)
	}
	at := func(eps float64) float64 { return krrDelta(rule, k, gamma, users, eps) }
	if top == 0 {
		return 0, nil
	}
	if at(top) > delta {
		return eps0, nil
	}
	return smallest(at, delta, top), nil
}

// KRRGamma returns the smallest blanket probability γ = num/den for which [KRRDelta] at ε = eps is at most delta. den
// is a power of two up to 2^62 and num/den is exact in float64. γ is rounded up by at most a relative 1e-9. Pure
// local privacy, γ = K/(e^ε+K−1), is a valid answer of all rules but [Theorem1]; they return it if it is smaller.
//
// Under [Theorem1], ε > 1 is an error, and so is γ ≥ 1: the error says how many users would suffice. Errors are of
// type [invalid.FieldError].
func KRRGamma(rule Rule, k, users uint64, eps, delta float64) (num, den uint64, err error) {
	if err := checkKRR(rule, k, users); err != nil {
		return 0, 0, err
	}
	if err := checkEpsilon(rule, eps); err != nil {
		return 0, 0, err
	}
	if eps == 0 {
		return 0, 0, invalid.Field("epsilon", "0", "a number above 0")
	}
	if err := checkDelta(delta); err != nil {
		return 0, 0, err
	}
	if rule == Theorem1 {
		return theorem1Gamma(k, users, eps, delta)
	}
	at := func(gamma float64) float64 { return krrDelta(rule, k, gamma, users, eps) }
	target := delta * (1 - 5e-10) // a client's float64 may differ from ours in the last digits
	gamma := smallest(at, target, pureGamma(k, eps))
	num, den = dyadic(gamma)
	for at(float64(num)/float64(den)) > target { // rarely: dyadic mostly rounds up by more than the search errs
		gamma *= 1 + 1e-10
		num, den = dyadic(gamma)
	}
	return num, den, nil
}

// KRREpsilon0 returns ε₀ = ln(1 + K(1−γ)/γ), the local privacy of k-ary randomized response
// with blanket probability gamma in (0, 1], rounded up by at most a relative 1e-15.
func KRREpsilon0(k uint64, gamma float64) float64 {
	return math.Log1p(float64(k)*(1-gamma)/gamma) * (1 + 8*ulp)
}

// LocalGamma returns the smallest blanket probability γ = num/den whose ε₀ is at most eps0 > 0, in the form of
// [KRRGamma]. Errors are of type [invalid.FieldError].
func LocalGamma(k uint64, eps0 float64) (num, den uint64, err error) {
	if err := checkKRR(Exact, k, 1); err != nil {
		return 0, 0, err
	}
	if !(eps0 > 0 && eps0 <= 64) {
		return 0, 0, invalid.Field("local-epsilon", text(eps0), "a number above 0, at most 64")
	}
	if num, den = dyadic(pureGamma(k, eps0)); num == den {
		return 0, 0, invalid.Field("local-epsilon", text(eps0), "a larger number: at this one γ rounds to 1")
	}
	return num, den, nil
}

// pureGamma returns K/(e^ε+K−1) rounded up until [KRREpsilon0] of it is at most ε.
func pureGamma(k uint64, eps float64) float64 {
	gamma := math.Max(float64(k)/(math.Expm1(eps)+float64(k))*(1+8*ulp), 0x1p-62) // the smallest γ allowed
	for KRREpsilon0(k, gamma) > eps && gamma < 1 {
		gamma = math.Min(1, gamma*(1+8*ulp))
	}
	return math.Min(gamma, 1)
}

// dyadic returns gamma in (0, 1] as num/den, den a power of two up to 2^62, rounded up by at
// most a relative 2^-32 for γ ≥ 2^-30. 1−γ, on which errors depend, falls by at most a relative 2^-23. num has at most
// 53 bits, so both are exact in float64.
func dyadic(gamma float64) (num, den uint64) {
	frac, exp := math.Frexp(gamma) // gamma = frac·2^exp, frac in [1/2, 1)
	_, rest := math.Frexp(1 - gamma)
	shift := max(min(32-exp, 62), min(24-rest, 53))
	num = uint64(math.Ceil(math.Ldexp(frac, exp+shift)))
	den = 1 << shift
	for num&1 == 0 && den > 1 {
		num, den = num/2, den/2
	}
	return num, den
}

func checkKRR(rule Rule, k, users uint64) error {
	if rule != Theorem1 && rule != Revealed && rule != Exact && rule != Others {
		return invalid.Field("rule", string(rule), "theorem1, revealed, exact or, for k = 2, others")
	}
	if k < 2 || k > MaxK {
		return invalid.Field("k", strconv.FormatUint(k, 10), "a whole number from 2 to 2^40")
	}
	if rule == Others && k != 2 {
		return invalid.Field("rule", string(rule), "theorem1, revealed or exact for k = "+strconv.FormatUint(k, 10)+
			": others is proven for k = 2 only")
	}
	return checkUsers(users)
}

// checkPairRule returns the error for a rule that [KRROutcomes] has no dominating pair for.
func checkPairRule(rule Rule) error {
	return invalid.Field("rule", string(rule), "revealed or exact")
}

func checkUsers(users uint64) error {
	if users < 1 || users > MaxUsers {
		return invalid.Field("users", strconv.FormatUint(users, 10), "a whole number from 1 to 1000000000")
	}
	return nil
}

func checkGamma(gamma float64) error {
	if !(gamma >= 0x1p-62 && gamma <= 1) {
		return invalid.Field("gamma", text(gamma), "a probability above 0, at most 1")
	}
	return nil
}

func checkEpsilon(rule Rule, eps float64) error {
	if !(eps >= 0 && eps <= math.MaxFloat64) {
		return invalid.Field("epsilon", text(eps), "a finite number, 0 or more")
	}
	if rule == Theorem1 && eps > 1 {
		return invalid.Field("epsilon", text(eps), "at most 1 for rule theorem1; the other rules allow any")
	}
	return nil
}

func checkDelta(delta float64) error {
	if !(delta >= 1e-280 && delta < 1) {
		return invalid.Field("delta", text(delta), "a number from 1e-280 to below 1")
	}
	return nil
}

// text formats x for an error message.
func text(x float64) string { return decimal.Format(x, -1) }
