package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// Rule is the name of the protocol's only rule: every counter is dominated by a Gaussian
// (docs/proofs/vectormean.md).
const Rule = "gaussian"

// slack is above the relative error of norms and their roots.
const slack = 1e-9

// CheckClaim is [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	eps, delta := m.task.Claim.Epsilon.Value(), m.task.Claim.Delta.Value()
	if m.task.Rule != Rule {
		return invalid.Field("rule", strconv.Quote(m.task.Rule), Rule+" for protocol vectormean")
	}
	if derived := m.delta(eps, delta); !(derived <= delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta.String(),
			"at least "+decimal.Up(derived, 7)+", the delta that rule "+Rule+" derives at epsilon "+
				m.task.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(m.task, m.Law)
}

// Law is [protocols.Mechanism.Law]: of the least bound over all shares of δ for counters that are not dominated.
func (m *Mechanism) Law() (*compose.Law, error) {
	var bounds []dominated
	m.dominate(m.task.Claim.Delta.Value(), func(b dominated) bool {
		bounds = append(bounds, b)
		return true
	})
	curve := func(eps float64) float64 {
		least := 1.0
		for _, b := range bounds {
			if b.missed < least {
				least = min(least, b.missed+m.gaussian(b.rate, b.null, eps))
			}
		}
		return least
	}
	return compose.LawOfSlow(curve, lawReach*m.task.Claim.Epsilon.Value()), nil
}

// shares are those of δ to try for the events in which a counter is not dominated. Much noise needs
// next to none, and little noise has most of its δ there.
var shares = [...]float64{1e-3, 1e-2, 0.1, 0.4}

// lawReach is how far a law goes, in multiples of the claim's ε: what Gaussians have beyond is less than is missed.
const lawReach = 2.5

// dominated is what dominates a counter and a counter of null messages, but for a probability of missed over all.
type dominated struct{ rate, null, missed float64 }

// dominate visits bounds for the shares of a δ as long as more are wanted, and none where there is more noise than
// anybody needs, and than can be summed up in memory. A client's own noise is among that of the n_min: it does not
// depend on the vector.
func (m *Mechanism) dominate(scale float64, more func(b dominated) bool) {
	n := m.task.Batch.Min
	if float64(n)*max(m.noise.variance(), m.null.variance()) > compose.MaxVariance {
		return
	}
	counters, nulls := float64(m.counters()*m.lanes), float64(m.lanes)
	counter := compose.NewBinomial(n*m.noise.trials, m.noise.chance.Float64())
	var null *compose.Binomial
	if m.null.trials > 0 {
		null = compose.NewBinomial(n*m.null.trials, m.null.chance.Float64())
	}
	for _, share := range shares {
		var b dominated
		b.rate, b.missed = counter.Rate(uint64(math.Ceil(m.units)), share*scale/counters)
		b.missed *= counters
		if null != nil {
			rate, missed := null.Rate(m.most(), share*scale/nulls)
			b.null, b.missed = rate, b.missed+nulls*missed
		}
		if !more(b) {
			return
		}
	}
}

// delta returns an upper bound on δ(eps) that resolves values around scale (Theorem 2 of the proofs).
func (m *Mechanism) delta(eps, scale float64) float64 {
	least := 1.0
	m.dominate(scale, func(b dominated) bool {
		total := b.missed + m.gaussian(b.rate, b.null, eps)
		if total > least && least < 1 {
			return false // of the shares, the one before was best
		}
		least = min(least, total)
		return true
	})
	return least
}

// gaussian bounds δ(eps) of the Gaussians that dominate counters and null messages, whose shifts count
// rate and rate0 each. With a lane for each of N coefficients of 0 to h units, the squared norm is at
// most N·h²·(rate²+rate0²). In one lane it is, given the roundings,
//
//	S ≤ rate²·(‖x‖² + ‖x'‖²) + rate0²·A²                                              (5)
//
// and as ln δ is concave in S, with slope κ at S₀, E[δ] ≤ δ(S₀)·E[e^{κ(S-S₀)}] for every S₀. Where δ(S₀) is too
// small to have a slope, lowest goes on to larger S₀.
func (m *Mechanism) gaussian(rate, rate0, eps float64) float64 {
	if math.IsInf(rate+rate0, 1) {
		return 1
	}
	square := m.units * m.units * (1 + slack)
	if m.frame != nil {
		delta, _ := compose.GaussianDelta(float64(m.size)*square*(rate*rate+rate0*rate0), eps)
		return delta
	}
	fixed := math.Pow(rate0*float64(m.most()), 2)
	least := fixed + 2*rate*rate*square
	at := func(log float64) float64 {
		point := least * math.Exp(log) // S₀
		delta, slope := compose.GaussianDelta(point, eps)
		return math.Log(delta) + slope*(fixed-point) + 2*m.roundingMoment(slope*rate*rate, square)
	}
	bound := math.Exp(at(lowest(at, 0, 5))) * (1 + slack)
	if !(bound <= 1) {
		return 1
	}
	return bound
}

// lowest returns where between lo and hi a function with one dip has it, nearly, by golden sections.
func lowest(f func(float64) float64, lo, hi float64) float64 {
	const golden = 0.6180339887498949
	left, right := hi-golden*(hi-lo), lo+golden*(hi-lo)
	atLeft, atRight := f(left), f(right)
	for range 14 {
		if atLeft < atRight {
			hi, right, atRight = right, left, atLeft
			left = hi - golden*(hi-lo)
			atLeft = f(left)
		} else {
			lo, left, atLeft = left, right, atRight
			right = lo + golden*(hi-lo)
			atRight = f(right)
		}
	}
	return (lo + hi) / 2
}

// roundingMoment bounds ln E[e^{a‖x‖²}] over all vectors t of squared norm at most square, x being t
// rounded (Lemma 4): for every α
//
//	Σ_l ln E[e^{a·x_l²}] ≤ α·Σ t_l² + d·β(α),   β(α) = max_t { ln E[e^{a·x²}] - α·t² }
//
// It is convex in α, a maximum of lines; any α gives a bound.
func (m *Mechanism) roundingMoment(a, square float64) float64 {
	at := func(alpha float64) float64 { return alpha*square + float64(m.size)*m.excess(a, alpha) }
	return at(lowest(at, a, 8*a))
}

// excess returns β(α). Between the whole numbers y and y+1, with t = y+f, the function is
//
//	ln(1 + f·r) + a·y² - α(y+f)²,   r = e^{a(2y+1)} - 1
//
// concave in f, with its peak where 2α(y+f)(1+fr) = r.
func (m *Mechanism) excess(a, alpha float64) (most float64) {
	for y := 0.0; y < m.units; y++ {
		r := math.Expm1(a * (2*y + 1))
		b, c := 2*alpha*(1+y*r), 2*alpha*y-r
		f := min(max(-2*c/(b+math.Sqrt(b*b-8*alpha*r*c)), 0), 1)
		most = max(most, math.Log1p(f*r)+a*y*y-alpha*(y+f)*(y+f))
	}
	return most
}

// Epsilon0 is [protocols.Mechanism.Epsilon0]: there is none. A client that sent a message of no kind
// but those of its units shows them.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }
