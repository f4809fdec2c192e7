package splitmix

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// The rules: bounds on the statistical distance SD between the shuffled shares of n clients and a
// function of their sum.
const (
	// RulePaper is [BBGN19b] (Lemma 2.1): m = 2 + 5⌈log₂q⌉ + ⌈2σ + 2log₂(n-1)⌉ gives SD ≤ 2^-σ.
	RulePaper = "paper"
	// RuleRoot is [BBGN19b] (section 5.1): m is the root of m = 1 + σ + 5⌈log₂q⌉/2 +
	// log₂(π(m+½))/4 + log₂(n-1), rounded up.
	RuleRoot = "section5.1"
	// RuleComponents counts the components of a random graph, with proof in
	// docs/proofs/splitmix.md: SD ≤ ½√(Z-1), Z = E[q^{C-1}] for m-1 shares. The default.
	RuleComponents = "components"
)

func checkRule(rule string) error {
	if rule != RulePaper && rule != RuleRoot && rule != RuleComponents {
		return invalid.Field("rule", strconv.Quote(rule), "components, section5.1 or paper for protocol splitmix")
	}
	return nil
}

// statisticalDistance returns the bound of a rule, at most 1, for n clients of m messages each.
// Lemma 1.2 of the paper turns it into δ = (1+e^ε)·SD; the paper's Theorem 4.1 leaves the factor
// out. For one client the view is a function of the sum anyway.
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

// CheckClaim is [protocols.Mechanism.CheckClaim]: formula (4).
func (m *Mechanism) CheckClaim() error {
	g, err := newTarget(m.task)
	if err != nil {
		return err
	}
	if eps := m.epsilon(); !(eps <= g.eps) {
		return invalid.Field("claim.epsilon", m.task.Claim.Epsilon, "at least "+strconv.FormatFloat(eps, 'g', 6, 64)+", s times p")
	}
	delta := statisticalDistance(m.task.Rule, g.users, m.m, m.q) * (1 + math.Exp(g.eps)) * (1 + 1e-12)
	if !(delta <= g.delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta,
			"at least "+strconv.FormatFloat(delta, 'g', 4, 64)+", the delta that rule "+m.task.Rule+" derives for "+strconv.FormatUint(m.m, 10)+" messages")
	}
	return nil
}

// epsilon returns s·p: the sum changes by at most p, and the noise is discrete Laplace.
func (m *Mechanism) epsilon() float64 {
	return float64(m.s.Num) * float64(m.p) / float64(m.s.Den)
}

// Epsilon0 is [protocols.Mechanism.Epsilon0]: a client's own messages give its value away.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }

// MaxWrap is the largest probability that a batch's noise exceeds (q-np)/2 and the decoded sum is off
// by q: 2^-40.
const MaxWrap = 0x1p-40

// leastQ returns the smallest q that proves wrap-around no likelier than [MaxWrap]. The noise of all n
// clients is X - Y, both NB(r, α), r = n/n_min. By Chernoff's bound, for every θ in (0, s),
//
//	Pr[|X-Y| ≥ T] ≤ 2·e^{K(θ)-θT},  K(θ) = r·ln((1-α)² / ((1-αe^θ)(1-αe^-θ)))
//
// so that T = (K(θ) + ln(2/MaxWrap))/θ will do for any θ; this takes the least of them, and
// q = np + 2T.
func (m *Mechanism) leastQ() uint64 {
	s, r := m.s.Float64(), float64(m.task.Batch.Size)/float64(m.task.Batch.Min)
	reach := func(theta float64) float64 {
		k := 2*math.Log(-math.Expm1(-s)) - math.Log(-math.Expm1(theta-s)) - math.Log(-math.Expm1(-theta-s))
		return (r*k - math.Log(MaxWrap/2)) / theta
	}
	lo, hi := 0.0, s
	for range 100 { // (K+c)/θ falls and then rises, as K is convex and c positive
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
