package splitmix

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// The privacy rules. Each bounds the statistical distance SD between the shuffled shares of n clients and a function of
// their sum.
const (
	// RulePaper is Lemma 2.1 of [BBGN19b]: m = 2 + 5⌈log₂q⌉ + ⌈2σ + 2log₂(n-1)⌉ messages per client give SD ≤ 2^-σ.
	RulePaper = "paper"
	// RuleRoot is the rule of [BBGN19b], section 5.1: SD ≤ 2^-σ, where m is the root of m = 1 + σ + 5⌈log₂q⌉/2 +
	// log₂(π(m+½))/4 + log₂(n-1), rounded up.
	RuleRoot = "section5.1"
	// RuleComponents counts the connected components of a random graph (proof in docs/proofs/splitmix.md). It is the
	// default rule: SD ≤ ½√(Z-1), with Z = E[q^{C-1}] for m-1 shares and C the number of components.
	RuleComponents = "components"
)

func checkRule(rule string) error {
	if rule != RulePaper && rule != RuleRoot && rule != RuleComponents {
		return invalid.Field("rule", invalid.Quote(rule), "components, section5.1 or paper for protocol splitmix")
	}
	return nil
}

// statisticalDistance returns the rule's bound on the statistical distance SD, at most 1, for n clients of m messages
// each and modulus q. δ = (1+e^ε)·SD follows by Lemma 1.2 of [BBGN19b]; the paper's Theorem 4.1 omits the factor. For
// one client the bound is 0, because its messages are a function of the sum anyway.
func statisticalDistance(rule string, n, m, q uint64) float64 {
	if n == 1 {
		return 0
	}
	messages, log2q := float64(m), ceilLog2(q)
	sigma := 0.0
	switch rule {
	case RulePaper:
		sigma = math.Floor(messages-2-5*log2q)/2 - math.Log2(float64(n-1))
	case RuleRoot:
		sigma = messages - 1 - 2.5*log2q - math.Log2(math.Pi*(messages+0.5))/4 - math.Log2(float64(n-1))
	default:
		return min(1, math.Exp(logExcess(n, m-1, float64(q))/2)/2)
	}
	return min(1, math.Exp2(-sigma)*(1+1e-12))
}

// CheckClaim implements [protocols.Mechanism.CheckClaim] by formula (4) of the package comment: ε = s·p, δ =
// (1+e^ε)·SD.
func (m *Mechanism) CheckClaim() error {
	g := newTarget(m.task)
	if eps := m.epsilon(); !(eps <= g.eps) {
		return invalid.Field("claim.epsilon", m.task.Claim.Epsilon.String(),
			"at least "+decimal.Up(eps, 7)+", s times p")
	}
	delta := statisticalDistance(m.task.Rule, g.users, m.m, m.q) * (1 + math.Exp(g.eps)) * (1 + 1e-12)
	if !(delta <= g.delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta.String(),
			"at least "+decimal.Up(delta, 7)+", the delta that rule "+m.task.Rule+" derives for "+
				strconv.FormatUint(m.m, 10)+" messages")
	}
	return protocols.CheckTotal(m.task, m.Law)
}

// Law implements [protocols.Mechanism.Law]. It adds up two losses. One is that of discrete Laplace noise against the
// same noise shifted by p; smaller shifts lose no more, because the noise is log-concave. The other is the statistical
// distance of the shares from a function of the sum.
func (m *Mechanism) Law() (*compose.Law, error) {
	distance := statisticalDistance(m.task.Rule, newTarget(m.task).users, m.m, m.q) * (1 + 1e-12)
	s, p := m.s.Float64(), float64(m.p)
	return compose.LawOf(func(eps float64) float64 {
		return shifted(s, p, eps) + (1+math.Exp(eps))*distance
	}, m.epsilon()*(1+1e-15)), nil
}

// shifted returns δ(ε), rounded up, for telling noise k with probabilities ∝ e^{−s|k|} from the same noise plus p:
//
//	max_t Pr[k ≤ t] − e^ε·Pr[k ≤ t−p] = 1 − α^{t+1}/(1+α) − e^ε·α^{p−t}/(1+α),   0 ≤ t < p,  α = e^−s
//
// The likelihood ratio falls with k. So the best t is the last with s(p−2t) > ε or a neighbour of it, and the function
// tries these.
func shifted(s, p, eps float64) (delta float64) {
	if eps >= s*p {
		return 0
	}
	alpha, last := math.Exp(-s), math.Floor((p-eps/s)/2)
	for t := max(0, last-1); t <= min(p-1, last+1); t++ {
		delta = max(delta, 1-(math.Exp(-s*(t+1))+math.Exp(eps-s*(p-t)))/(1+alpha))
	}
	return delta + 1e-15
}

// epsilon returns s·p. One client changes the sum by at most p, and the noise is discrete Laplace with exponent s.
func (m *Mechanism) epsilon() float64 {
	return float64(m.s.Num) * float64(m.p) / float64(m.s.Den)
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. It is +Inf: a client's own messages reveal its value.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }

// MaxWrap is the largest allowed probability that a batch's noise exceeds (q-np)/2 and the decoded sum is off by q:
// 2^-40.
const MaxWrap = 0x1p-40

// leastQ returns the smallest modulus q for which a bound proves that the sum wraps around with probability at most
// [MaxWrap]. The noise of all n clients is X - Y, both NB(r, α), r = n/n_min. By Chernoff's bound, for every θ in (0,
// s),
//
//	Pr[|X-Y| ≥ T] ≤ 2·e^{K(θ)-θT},  K(θ) = r·ln((1-α)² / ((1-αe^θ)(1-αe^-θ)))
//
// So T = (K(θ) + ln(2/MaxWrap))/θ suffices for any θ. leastQ takes the least such T, and q = np + 2T.
func (m *Mechanism) leastQ() uint64 {
	s, r := m.s.Float64(), float64(m.task.Batch.Size)/float64(m.task.Batch.Min)
	reach := func(theta float64) float64 {
		k := 2*math.Log(-math.Expm1(-s)) - math.Log(-math.Expm1(theta-s)) - math.Log(-math.Expm1(-theta-s))
		return (r*k - math.Log(MaxWrap/2)) / theta
	}
	lo, hi := 0.0, s
	for range 100 { // the bound falls and then rises in θ: it is (K+c)/θ, K convex, c positive
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if reach(a) < reach(b) {
			hi = b
		} else {
			lo = a
		}
	}
	t := math.Ceil(reach((lo+hi)/2)*(1+1e-9)) + 1
	return m.task.Batch.Size*m.p + 2*uint64(min(t, maxQ))
}

// maxTable is the largest size of logExcess's table, which bounds the time of a claim check. For at most tableUsers
// clients, the table extends to all of them.
const (
	maxTable   = 1024
	tableUsers = 64
)

// negligible is a logarithm, relative to the largest term. logSum counts every smaller term as e^negligible times the
// largest, which rounds up.
const negligible = -45

// slack is added to the logarithms of sums. It exceeds their rounding errors, so results are upper bounds.
const slack = 1e-8

// logExcess returns an upper bound on ln(Z_n - 1), where Z_n = E[q^{C-1}] and C is the number of
// connected components of the random multigraph on n vertices that matches m out-stubs of each vertex
// to m in-stubs of each (docs/proofs/splitmix.md). With
//
//	b_N(t) = C(N-1, t)/C(mN, mt),   κ_N = 1/N + N·(2/(N-1))^{m-1}
//
// the component of the first vertex leaves t other vertices in components of their own, so that
//
//	Z_N - 1 ≤ Σ_{t=1}^{N-1} b_N(t)·q·Z_t                                    (5)
//
// logExcess fills a table with Z_1, Z_2, … by the recursion (5). It stops at the first N for which, at N+1, (5) and
// 2q·κ·N/C(mN, m) together are at most 1. From there on, Z stays below 2, and for every n > N
//
//	Z_n - 1 ≤ Σ_{t=1}^{N} b_n(t)·q·Z_t + 2q·κ_n·n/C(mn, m)                  (6)
//
// For few clients κ_n is far above 1 and would cost one message more. So for up to tableUsers clients logExcess uses
// (5) up to n itself. It returns +Inf if the table would need more than maxTable entries, or if m is too small: m < 1,
// or m < 2 beyond maxTable clients.
func logExcess(n, m uint64, q float64) float64 {
	if m < 1 || m < 2 && n > maxTable {
		return math.Inf(1)
	}
	z := newTable(m, q)
	for size := uint64(2); size <= maxTable; size++ {
		excess := z.next()
		if size == n {
			return excess
		}
		if m >= 2 && n > tableUsers && logAdd(excess, z.rest(size)) <= 0 { // size is N+1 of (6)
			return logAdd(z.far(n), z.rest(n))
		}
		z.push(size, log1pExp(excess))
	}
	return math.Inf(1)
}

// table holds upper bounds on ln Z_1, …, ln Z_N for [logExcess].
type table struct {
	m        uint64
	logQ     float64
	logZ     []float64 // logZ[t-1] = ln Z_t
	others   []float64 // others[t-1] = ln(Z_t·(mt)!/t!)
	first    []float64 // first[s-1] = ln((ms)!/(s-1)!)
	exponent []float64 // Scratch memory for the terms of a sum, as logarithms.
}

func newTable(m uint64, q float64) *table {
	z := &table{m: m, logQ: math.Log(q)}
	z.push(1, 0)
	return z
}

// push appends ln Z_t and the logarithms that depend on t.
func (z *table) push(t uint64, logZ float64) {
	all, fact := logFactorial(t*z.m), logFactorial(t)
	z.logZ = append(z.logZ, logZ)
	z.others = append(z.others, logZ+all-fact)
	z.first = append(z.first, all-fact+math.Log(float64(t)))
}

// next returns the logarithm of the bound (5) of [logExcess] on Z_N - 1, with N one more than the table's entries. It
// computes (5) in the form
//
//	q·(N-1)!/(mN)! · Σ Z_t·(mt)!/t! · (m(N-t))!/(N-t-1)!
func (z *table) next() float64 {
	n := len(z.logZ)
	z.exponent = z.exponent[:0]
	for t := range n {
		z.exponent = append(z.exponent, z.others[t]+z.first[n-1-t])
	}
	size := uint64(n + 1)
	return logSum(z.exponent) + z.logQ + logFactorial(size-1) - logFactorial(size*z.m)
}

func logFactorial(n uint64) float64 {
	v, _ := math.Lgamma(float64(n) + 1)
	return v
}

// far returns the logarithm of the sum in (6) of [logExcess], for n beyond the table. It multiplies ratios of
// neighbouring binomials, because differences of large logarithms would lose digits.
func (z *table) far(n uint64) float64 {
	z.exponent = z.exponent[:0]
	users, m := float64(n), float64(z.m)
	b := 0.0
	for t := range z.logZ { // b becomes ln b_n(t+1), from ln b_n(t)
		done := float64(t)
		b += math.Log((users - 1 - done) / (done + 1))
		for i := 1.0; i <= m; i++ {
			b += math.Log((m*done + i) / (m*(users-done) - m + i))
		}
		z.exponent = append(z.exponent, b+z.logQ+z.logZ[t])
	}
	return logSum(z.exponent)
}

// rest returns ln(2q·κ_n·n/C(mn, m)), the second term of (6) of [logExcess], rounded up.
func (z *table) rest(n uint64) float64 {
	users, m := float64(n), float64(z.m)
	b := math.Log(users)
	for i := 1.0; i <= m; i++ {
		b += math.Log(i / (m*users - m + i))
	}
	kappa := 1/users + users*math.Pow(2/(users-1), m-1)
	return b + z.logQ + math.Log(2*kappa) + slack
}

// logSum returns ln Σe^x, rounded up.
func logSum(xs []float64) float64 {
	top := math.Inf(-1)
	for _, x := range xs {
		top = max(top, x)
	}
	if math.IsInf(top, -1) {
		return top
	}
	sum := 0.0
	for _, x := range xs {
		if x > top+negligible {
			sum += math.Exp(x - top)
		}
	}
	return top + math.Log(sum+float64(len(xs))*math.Exp(negligible)) + slack
}

func logAdd(a, b float64) float64 { return logSum([]float64{a, b}) }

// log1pExp returns ln(1 + e^x).
func log1pExp(x float64) float64 {
	if x > 700 {
		return x
	}
	return math.Log1p(math.Exp(x))
}
