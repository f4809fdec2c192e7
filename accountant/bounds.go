package accountant

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// Mechanism names a local randomizer that the shuffle amplifies.
type Mechanism string

// The mechanisms.
const (
	Generic  Mechanism = "generic"  // any ε₀-LDP randomizer
	KRR      Mechanism = "krr"      // k-ary randomized response
	Laplace  Mechanism = "laplace"  // x + Lap(1/ε₀), x in [0, 1]
	Gaussian Mechanism = "gaussian" // x + N(0, σ²), x in [0, 1]: only [GaussianGamma]
)

// Bound names a bound on the privacy loss after shuffling.
type Bound string

// The bounds, from [BBGN19] unless stated otherwise.
const (
	EFMRTT19     Bound = "efmrtt19"  // Theorem 4: the bound of Erlingsson et al. 2019
	Hoeffding    Bound = "hoeffding" // Lemma 8 (a sum over the blanket), bounded by Hoeffding's inequality (Lemma 10)
	Bennett      Bound = "bennett"   // Lemma 8, bounded by Bennett's inequality (Lemma 11, corrected)
	Theorem6     Bound = "theorem6"  // Theorem 6: a closed form for any ε₀-LDP randomizer
	Clones       Bound = "clones"    // Feldman, McMillan, Talwar 2021
	RevealedBits Bound = "revealed"  // the exact divergence of rule [Revealed]
	ExactBits    Bound = "exact"     // the exact divergence of rule [Exact]; for laplace, Lemma 8 evaluated numerically
	OthersBits   Bound = "others"    // the divergence of rule [Others], for two values
)

// Bounds returns the bounds valid for a mechanism; nil for an unknown one and for gaussian. k is the domain size of
// krr. Other mechanisms ignore it.
func Bounds(mechanism Mechanism, k uint64) []Bound {
	switch mechanism {
	case Generic:
		return []Bound{EFMRTT19, Hoeffding, Bennett, Theorem6, Clones}
	case KRR:
		bounds := []Bound{Hoeffding, Bennett, RevealedBits, ExactBits}
		if k == 2 {
			bounds = append(bounds, OthersBits)
		}
		return bounds
	case Laplace:
		return []Bound{Hoeffding, Bennett, ExactBits}
	}
	return nil
}

// Amplification is a bound on a mechanism: all parameters except (ε, δ).
type Amplification struct {
	Mechanism Mechanism // Required.
	Bound     Bound     // Required. One of [Bounds](Mechanism, K).
	Epsilon0  float64   // Local ε₀. Required. Above 0, at most 40; below ½ for efmrtt19.
	K         uint64    // Domain size. Required for krr, else ignored. 2 to 2^40.
	Users     uint64    // Number of users shuffled together. Required. 1 to 1e9; 1000 or more for efmrtt19.
}

// maxEpsilon0 keeps e^ε₀ and its powers within float64.
const maxEpsilon0 = 40

// Validate returns an [invalid.FieldError] for a field out of range or a bound that is not
// valid for the mechanism.
func (a Amplification) Validate() error {
	if err := a.checkPair(); err != nil {
		return err
	}
	if !(a.Epsilon0 > 0 && a.Epsilon0 <= maxEpsilon0) {
		return invalid.Field("eps0", text(a.Epsilon0), "a number above 0, at most 40")
	}
	if a.Bound == EFMRTT19 && a.Epsilon0 >= 0.5 {
		return invalid.Field("eps0", text(a.Epsilon0), "below 0.5 for bound efmrtt19")
	}
	if err := checkUsers(a.Users); err != nil {
		return err
	}
	if a.Bound == EFMRTT19 && a.Users < 1000 {
		return invalid.Field("users", strconv.FormatUint(a.Users, 10), "at least 1000 for bound efmrtt19")
	}
	return nil
}

// checkPair checks that the bound is valid for the mechanism and k.
func (a Amplification) checkPair() error {
	valid := Bounds(a.Mechanism, a.K)
	if valid == nil {
		return invalid.Field("mechanism", string(a.Mechanism), "generic, krr or laplace")
	}
	names, found := "", false
	for i, b := range valid {
		found = found || b == a.Bound
		if i > 0 {
			names += ", "
		}
		names += string(b)
	}
	if !found {
		which := string(a.Mechanism)
		if a.Mechanism == KRR {
			which += " with k = " + strconv.FormatUint(a.K, 10)
		}
		return invalid.Field("bound", string(a.Bound), "one valid for mechanism "+which+": "+names)
	}
	if a.Mechanism == KRR && (a.K < 2 || a.K > MaxK) {
		return invalid.Field("k", strconv.FormatUint(a.K, 10), "a whole number from 2 to 2^40")
	}
	return nil
}

// checkDelta checks that δ is in the range for which the bound is proven.
func (a Amplification) checkDelta(delta float64) error {
	if err := checkDelta(delta); err != nil {
		return err
	}
	if a.Bound == EFMRTT19 && delta >= 0.01 {
		return invalid.Field("delta", text(delta), "below 0.01 for bound efmrtt19")
	}
	return nil
}

// raw returns the bound's own δ(ε), without the fallback to local privacy, for valid arguments. It is rounded up by
// at most a relative 1e-9, and +Inf if the bound proves nothing or float64 overflows.
func (a Amplification) raw(eps float64) float64 {
	if delta := a.formula(eps); !math.IsNaN(delta) {
		return delta
	}
	return math.Inf(1)
}

func (a Amplification) formula(eps float64) float64 {
	switch a.Bound {
	case EFMRTT19:
		return a.efmrtt19(eps)
	case Theorem6:
		return a.theorem6(eps)
	case Clones:
		return a.clones(eps)
	case Hoeffding:
		return a.hoeffding(eps)
	case Bennett:
		return a.bennett(eps)
	case RevealedBits:
		return revealedDelta(a.K, a.gamma(), a.Users, eps) + tiny
	}
	if a.Mechanism == Laplace {
		return laplaceDelta(a.Epsilon0, a.Users, eps) + tiny
	}
	if eps >= a.Epsilon0 {
		return 0
	}
	if a.Bound == OthersBits {
		return othersDelta(a.gamma(), a.Users, eps) + tiny
	}
	return exactDelta(a.K, a.gamma(), a.Users, eps) + tiny
}

// gamma returns the mechanism's blanket probability ([BBGN19], Lemma 6), rounded down.
func (a Amplification) gamma() float64 {
	switch a.Mechanism {
	case KRR:
		return float64(a.K) / (math.Expm1(a.Epsilon0) + float64(a.K)) * (1 - 4*ulp)
	case Laplace:
		return math.Exp(-a.Epsilon0/2) * (1 - 4*ulp)
	}
	return math.Exp(-a.Epsilon0) * (1 - 4*ulp) // Lemma 7: every ε₀-LDP randomizer has γ ≥ e^−ε₀
}

// GaussianGamma returns the blanket probability of x + N(0, σ²) on [0, 1],
//
//	γ = 2·Pr[N(0, σ²) ≤ −½] = erfc(1/(2√2·σ))        [BBGN19] (Lemma 6)
//
// rounded down by at most a relative 1e-14. sigma must be positive and finite.
func GaussianGamma(sigma float64) (float64, error) {
	if !(sigma > 0 && sigma <= math.MaxFloat64) {
		return 0, invalid.Field("sigma", text(sigma), "a finite number above 0")
	}
	return math.Erfc(1/(2*math.Sqrt2*sigma)) * (1 - 1e-14), nil
}

// boundMargin exceeds the relative floating-point error of the closed forms. Exponents reach 700, and powers with n =
// 10⁹ are computed through log1p.
const boundMargin = 1e-11

// efmrtt19 solves ε = 12·ε₀·√(ln(1/δ)/n) for δ; valid for δ < 1/100.
func (a Amplification) efmrtt19(eps float64) float64 {
	x := eps / (12 * a.Epsilon0)
	delta := math.Exp(-float64(a.Users)*x*x) * (1 + boundMargin)
	if delta >= 0.01 {
		return math.Inf(1)
	}
	return delta
}

// theorem6 returns δ by formula (4) of [BBGN19], the closed form in Theorem 6.
func (a Amplification) theorem6(eps float64) float64 {
	if eps == 0 {
		return math.Inf(1)
	}
	n, c := float64(a.Users), -math.Expm1(-2)
	spread := (math.Exp(eps) + 1) * 2 * math.Sinh(a.Epsilon0) // (e^ε+1)(e^ε₀−e^-ε₀)
	drift := math.Expm1(eps)
	rate := math.Min(math.Exp(-a.Epsilon0), drift/spread*(drift/spread))
	return spread / drift * spread / (4 * n) * math.Exp(-c*n*rate) * (1 + boundMargin)
}

// clones returns δ(ε) of the dominating pair (P, Q) of Feldman, McMillan and Talwar, "Hiding among the clones" (2021).
// The pair is valid for any ε₀-LDP randomizer. With C ~ Bin(n−1, e^-ε₀), A ~ Bin(C, ½) and D ~ Ber(e^ε₀/(1+e^ε₀)), P =
// (A+D, C−A+1−D), and Q is P with its two counts exchanged. If P and Q are written as reweighted Bin(C+1, ½),
//
//	δ(ε) = 2/(n·e^-ε₀·(1+e^ε₀))·E[((e^ε₀−e^ε)·N₁ − (e^{ε₀+ε}−1)·N₂)₊]
//
// where N₁ and N₂ count n users who fall into either cell with probability e^-ε₀/2 each. [exactDelta] evaluates the
// same walk with other steps.
func (a Amplification) clones(eps float64) float64 {
	if eps >= a.Epsilon0 {
		return 0
	}
	r := a.gamma()
	up := math.Exp(eps) * math.Expm1(a.Epsilon0-eps) * (1 + 8*ulp)
	down := math.Expm1(a.Epsilon0+eps) * (1 - 4*ulp)
	w := walk{n: float64(a.Users), p: r / 2, rest: 1 - r, up: 1, down: down / up}
	w.scale = 2 * up / (w.n * r * (1 + math.Exp(a.Epsilon0)))
	if eps == 0 { // up and down differ only by rounding
		w.down = 1
		return math.Min(1, w.totalVariation()) + tiny
	}
	value, _ := w.expectation()
	return math.Min(1, value) + tiny
}

// hoeffding bounds the sum over the blanket (Lemma 8 of [BBGN19]) by Hoeffding's inequality (Lemma 10). Each summand
// lies in an interval of length b and has mean −a, with a = e^ε−1. Averaged over M ~ Bin(n, γ), without M = 0,
//
//	δ ≤ b²/(4aγn)·[(1−γ(1−e^{−2a²/b²}))ⁿ − (1−γ)ⁿ]        (1)
func (a Amplification) hoeffding(eps float64) float64 {
	if eps == 0 {
		return math.Inf(1)
	}
	drift := math.Expm1(eps)
	if a.Mechanism == Generic {
		return a.hoeffdingGeneric(eps)
	}
	gamma := a.gamma()
	low, high := a.bounds(eps)
	b := high - low
	x := 2 * (drift / b) * (drift / b)
	factor := b / drift * b / (4 * gamma * float64(a.Users))
	return factor * blanketMean(gamma, x, float64(a.Users)) * (1 + boundMargin)
}

// hoeffdingGeneric returns the supremum of (1), the bound stated at hoeffding, over γ in [e^-ε₀, 1]: a generic
// randomizer's γ is unknown. With b = γB, B = (e^ε+1)(e^ε₀−e^-ε₀) (Lemma 9, the range of a summand), it is at most
//
//	sup γB²/(4an)·(1−g(γ))ⁿ,   g(γ) = γ(1−e^{−2a²/(γB)²}).
//
// g rises and then falls: its derivative has the sign of e^u−1−2u, u = 2a²/(γB)². So on an interval of γ the expression
// is at most the factor γB²/(4an) at the right end, times (1−g)ⁿ with the smaller of g's values at the two ends.
// [supremum] repeatedly halves the interval with the largest bound, which converges to the supremum from above.
func (a Amplification) hoeffdingGeneric(eps float64) float64 {
	n, drift := float64(a.Users), math.Expm1(eps)
	length := (math.Exp(eps) + 1) * 2 * math.Sinh(a.Epsilon0)
	g := func(gamma float64) float64 {
		x := drift / (gamma * length)
		return -gamma * math.Expm1(-2*x*x)
	}
	worst := supremum(a.gamma(), 1, func(lo, hi float64) float64 {
		return math.Log(hi) + n*math.Log1p(-math.Min(g(lo), g(hi)))
	})
	return length / drift * length / (4 * n) * math.Exp(worst) * (1 + boundMargin)
}

// supremum returns an upper bound on a function on [lo, hi], given bounds on subintervals. It halves the subinterval
// with the largest bound, up to 400 times.
func supremum(lo, hi float64, bound func(lo, hi float64) float64) float64 {
	type piece struct{ lo, hi, top float64 }
	pieces := []piece{{lo, hi, bound(lo, hi)}}
	for {
		worst := 0
		for i, p := range pieces {
			if p.top > pieces[worst].top {
				worst = i
			}
		}
		p := pieces[worst]
		mid := p.lo + (p.hi-p.lo)/2
		if len(pieces) == 400 || mid <= p.lo || mid >= p.hi || p.top-math.Max(bound(p.lo, p.lo),
			bound(p.hi, p.hi)) < 1e-10 {
			return p.top
		}
		pieces[worst] = piece{p.lo, mid, bound(p.lo, mid)}
		pieces = append(pieces, piece{mid, p.hi, bound(mid, p.hi)})
	}
}

// bennett bounds the sum over the blanket (Lemma 8 of [BBGN19]) by Bennett's inequality (Lemma 11). Lemma 11 as printed
// has an extra factor 1/(a·m), so its result lies below the true divergence. With L ≤ b₊, E[L] = −a, E[L²] ≤ c, h(u) =
// (1+u)ln(1+u)−u, Bennett's inequality (Boucheron, Lugosi, Massart, Theorem 2.9) and the convexity of h give
//
//	E[(ΣL)₊] = ∫₀^∞ Pr[ΣL > t] dt ≤ ∫₀^∞ exp(−(mc/b₊²)·h(b₊(t+ma)/(mc))) dt
//	         ≤ b₊/ln(1+ab₊/c)·e^{−ms},   s = (c/b₊²)·h(ab₊/c)
//
// and averaged over M ~ Bin(n, γ), without M = 0,
//
//	δ ≤ b₊/(γn·ln(1+ab₊/c))·[(1−γ(1−e^{−s}))ⁿ − (1−γ)ⁿ]        (2)
//
// For a generic randomizer, b₊ = γβ and c = γC₁−2γ²E (Lemma 9, range and second moment of a summand). Then u = ab₊/c
// and h(u)/u rise with γ, s = (a/(βγ))·h(u)/u, and γ(1−e^{−s}) rises, so (2) without its last term −(1−γ)ⁿ falls with
// γ: its supremum is at γ = e^-ε₀.
func (a Amplification) bennett(eps float64) float64 {
	if eps == 0 {
		return math.Inf(1)
	}
	drift, gamma, n := math.Expm1(eps), a.gamma(), float64(a.Users)
	_, top := a.bounds(eps)
	if top <= 0 {
		return 0
	}
	c := a.secondMoment(eps)
	u := drift * top / c
	log := math.Log1p(u)
	s := c / top / top * bennettH(u) * (1 - 1e-12)
	power := blanketMean(gamma, s, n)
	if a.Mechanism == Generic {
		power = math.Exp(n * math.Log1p(gamma*math.Expm1(-s)))
	}
	return top / (gamma * n * log) * power * (1 + boundMargin)
}

// bennettH returns (1+u)·ln(1+u) − u for u ≥ 0. For small u it sums the series Σ (−1)^j u^j/(j(j−1)). The relative
// error is below 1e-13.
func bennettH(u float64) float64 {
	if u > 0.1 {
		return (1+u)*math.Log1p(u) - u
	}
	sum, power := 0.0, u
	for j := 2.0; j < 18; j++ {
		power *= -u
		sum -= power / (j * (j - 1))
	}
	return sum
}

// blanketMean returns Σ_{m≥1} Pr[Bin(n, γ) = m]·e^{−mx} = (1−γ(1−e^{−x}))ⁿ − (1−γ)ⁿ.
func blanketMean(gamma, x, n float64) float64 {
	all := n * math.Log1p(gamma*math.Expm1(-x))
	if gamma == 1 {
		return math.Exp(all)
	}
	return math.Exp(all) * -math.Expm1(n*math.Log1p(-gamma)-all)
}

// bounds returns the range of one summand L, the privacy amplification variable: [BBGN19] Lemma 9 (generic, at γ =
// e^-ε₀), Lemma 12 (krr) or Lemma 13 (laplace).
func (a Amplification) bounds(eps float64) (low, high float64) {
	gamma, e, e0 := a.gamma(), math.Exp(eps), a.Epsilon0
	switch a.Mechanism {
	case KRR:
		k := float64(a.K)
		notGamma := math.Expm1(e0) / (math.Expm1(e0) + k)
		mid := -gamma * math.Expm1(eps)
		return mid - notGamma*k*e, mid + notGamma*k
	case Laplace:
		return -math.Exp(-e0/2) * math.Expm1(eps+e0), -math.Exp(e0/2) * math.Expm1(eps-e0)
	}
	return -gamma * math.Exp(-e0) * math.Expm1(eps+2*e0), -gamma * math.Exp(e0) * math.Expm1(eps-2*e0)
}

// secondMoment returns an upper bound on E[L²]: [BBGN19] Lemma 9 (generic, at γ = e^-ε₀), Lemma 12 (krr) or Lemma 13
// (laplace).
func (a Amplification) secondMoment(eps float64) float64 {
	gamma, e, e0, drift := a.gamma(), math.Exp(eps), a.Epsilon0, math.Expm1(eps)
	switch a.Mechanism {
	case KRR:
		k := float64(a.K)
		notGamma := math.Expm1(e0) / (math.Expm1(e0) + k)
		return (gamma*(2-gamma)*drift*drift + notGamma*notGamma*k*(1+e*e)) * (1 + 1e-14)
	case Laplace:
		square := (e*e + 1) / 3 * (2*math.Exp(e0/2) + math.Exp(-e0))
		return square - 2*e*(2*math.Exp(-e0/2)-math.Exp(-e0))
	}
	return gamma*math.Exp(e0)*(e*e+1) - 2*gamma*gamma*math.Exp(eps-2*e0)
}
