package vectormean

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// Rule is the name of this protocol's only privacy rule: a Gaussian dominates every counter
// (docs/proofs/vectormean.md).
const Rule = "gaussian"

// slack exceeds the relative rounding error of norms and their roots.
const slack = 1e-9

// CheckClaim implements [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	eps, delta := m.task.Claim.Epsilon.Value(), m.task.Claim.Delta.Value()
	if m.task.Rule != Rule {
		return invalid.Field("rule", invalid.Quote(m.task.Rule), Rule+" for protocol vectormean")
	}
	if derived := m.curve().delta(eps); !(derived <= delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta.String(),
			"at least "+decimal.Up(derived, 7)+", the delta that rule "+Rule+" derives at epsilon "+
				m.task.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(m.task, m.Law)
}

// Law implements [protocols.Mechanism.Law], with the curve δ(ε) that proves the claim.
func (m *Mechanism) Law() (*compose.Law, error) {
	c := m.curve()
	return compose.LawOf(c.delta, c.reach(m.task.Claim.Epsilon.Value())), nil
}

// gaussianBound describes the Gaussians that dominate the counters: the shift per unit on a counter of units (rate) and
// of null messages (null). missed is the probability, over all counters, that they do not dominate.
type gaussianBound struct{ rate, null, missed float64 }

// curve is the rule's bound δ(ε) at every ε. At the best level, missed is some fraction of the Gaussian's δ. With much
// noise missed is close to 0; with little noise it makes up most of δ.
type curve struct {
	m       *Mechanism
	levels  []gaussianBound // missed falls: at each level it is about a quarter of that at the previous level.
	moments []float64       // Results of momentAt by exponent; 0 if not computed yet.
}

// quarters is how many times missed is quartered: down to 2⁻⁶⁰, the least probability that the accountant's laws may
// ignore.
const quarters = 30

// curve.delta tries only tried levels. They start ahead levels before the one where missed meets the Gaussian's δ
// without rounding, which is less than δ with rounding. They end at about a thousandth of that δ.
const (
	ahead = 2
	tried = 8
)

// curve returns the privacy bound of the mechanism's noise. It has no levels, and so proves nothing, if the noise is
// too much to fit in memory, which is more than anybody needs. A client's own noise counts among that of the n_min
// clients, because it does not depend on the vector.
func (m *Mechanism) curve() *curve {
	c, n := &curve{m: m, moments: make([]float64, 2*momentSteps+2)}, m.task.Batch.Min
	if float64(n)*max(m.noise.variance(), m.null.variance()) > compose.MaxVariance {
		return c
	}
	counters := m.rates(m.noise, uint64(math.Ceil(m.units)), float64(m.counters()*m.lanes))
	nulls := make([]compose.Rate, quarters)
	if m.null.trials > 0 {
		nulls = m.rates(m.null, m.most(), float64(m.lanes))
	}
	for k, r := range counters {
		if total := r.Missed + nulls[k].Missed; total < 1 {
			c.levels = append(c.levels, gaussianBound{r.Eta, nulls[k].Eta, total})
		}
	}
	return c
}

// rates returns, at each level, the Gaussian rate for some counters with the noise of n_min clients. Over these
// counters together, missed is at most ¼ at the first level, a sixteenth at the second, and so on. Counters of units
// and counters of null messages each have that much.
func (m *Mechanism) rates(noise noise, shift uint64, counters float64) []compose.Rate {
	misses := make([]float64, quarters)
	for k := range misses {
		misses[k] = math.Ldexp(1/counters, -2*k-2)
	}
	rates := compose.NewBinomial(m.task.Batch.Min*noise.trials, noise.chance.Float64()).Rates(shift, misses)
	for k := range rates {
		rates[k].Missed *= counters
	}
	return rates
}

// delta returns an upper bound on δ(eps) by Theorem 2 of docs/proofs/vectormean.md, the bound for one lane: missed,
// plus a Gaussian's δ with rounding. With a lane per coefficient it adds up the same two terms without rounding.
func (c *curve) delta(eps float64) float64 {
	crossing, least := 0, 1.0
	for ; crossing < len(c.levels); crossing++ {
		l := c.levels[crossing]
		if about, _ := compose.GaussianDelta(c.m.leastSquare(l.rate, l.null), eps); !(about < l.missed) {
			break
		}
	}
	first := max(0, min(crossing-ahead, len(c.levels)-tried))
	for _, l := range c.levels[first:min(first+tried, len(c.levels))] {
		least = min(least, l.missed+c.gaussian(l.rate, l.null, eps))
	}
	return least
}

// reach returns an ε beyond which the curve falls negligibly. eps must be an ε at which it still falls.
func (c *curve) reach(eps float64) float64 {
	if len(c.levels) == 0 {
		return eps
	}
	for floor := c.levels[len(c.levels)-1].missed; eps < mostReach && c.delta(eps) > 2*floor; {
		eps *= 1.05
	}
	return eps
}

// mostReach is the largest ε up to which reach follows the curve, apart from one step.
const mostReach = 40

// leastSquare returns the squared norm of the Gaussians' shifts without rounding; see [curve.gaussian]. rate scales the
// counters of units, rate0 those of null messages.
func (m *Mechanism) leastSquare(rate, rate0 float64) float64 {
	if m.frame != nil {
		return float64(m.size) * m.square() * (rate*rate + rate0*rate0)
	}
	return math.Pow(rate0*float64(m.most()), 2) + 2*rate*rate*m.square()
}

// square returns the square of a vector's largest norm, in units, raised by slack.
func (m *Mechanism) square() float64 { return m.units * m.units * (1 + slack) }

// gaussian bounds δ(eps) of the Gaussians that dominate the counters. rate scales the shifts of counters of units,
// rate0 those of counters of null messages. With a lane for each of N coefficients of 0 to h units, the squared norm of
// all shifts is at most N·h²·(rate²+rate0²). With one lane, given the roundings, the squared norm is
//
//	S ≤ rate²·(‖x‖² + ‖x'‖²) + rate0²·A²                                              (5)
//
// ln δ is concave in S. With slope κ at S₀, E[δ] ≤ δ(S₀)·E[e^{κ(S-S₀)}] for every S₀. gaussian minimises this bound
// over S₀. If δ(S₀) is too small to have a slope, lowest proceeds to larger S₀.
func (c *curve) gaussian(rate, rate0, eps float64) float64 {
	if math.IsInf(rate+rate0, 1) {
		return 1
	}
	least := c.m.leastSquare(rate, rate0)
	if c.m.frame != nil {
		delta, _ := compose.GaussianDelta(least, eps)
		return delta
	}
	fixed := math.Pow(rate0*float64(c.m.most()), 2)
	at := func(log float64) float64 {
		point := least * math.Exp(log) // S₀
		delta, slope := compose.GaussianDelta(point, eps)
		return math.Log(delta) + slope*(fixed-point) + 2*c.moment(slope*rate*rate)
	}
	bound := math.Exp(at(lowest(at, 0, 5))) * (1 + slack)
	if !(bound <= 1) {
		return 1
	}
	return bound
}

// lowest returns an approximate minimizer in lo..hi of a function that first falls and then rises, by golden-section
// search.
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

// curve.moment evaluates the bound only at powers of momentStep. The exponents go from -momentSteps to momentSteps:
// 10⁻⁹⁹ to 10⁹⁹.
const (
	momentStep  = 1.1
	momentSteps = 2400
)

// moment bounds ln E[e^{a‖x‖²}] over all vectors of norm at most s, x being the vector after rounding. It takes the
// chord between two powers of momentStep, evaluated once for all ε. The chord is no lower, because the maximum of
// logarithms of moments is convex in a.
func (c *curve) moment(a float64) float64 {
	at := math.Floor(math.Log(a) / math.Log(momentStep))
	if !(math.Abs(at) <= momentSteps) { // δ had no slope, or an extreme one.
		return math.NaN()
	}
	low, high := math.Pow(momentStep, at), math.Pow(momentStep, at+1)
	share := min(max((a-low)/(high-low), 0), 1)
	return c.momentAt(int(at), low)*(1-share) + c.momentAt(int(at)+1, high)*share
}

func (c *curve) momentAt(at int, a float64) float64 {
	known := &c.moments[at+momentSteps]
	if *known == 0 {
		*known = c.m.roundingMoment(a, c.m.square())
	}
	return *known
}

// roundingMoment bounds ln E[e^{a‖x‖²}] over all vectors t of squared norm at most square, x being t rounded (Lemma 4
// of docs/proofs/vectormean.md). For every α,
//
//	Σ_l ln E[e^{a·x_l²}] ≤ α·Σ t_l² + d·β(α),   β(α) = max_t { ln E[e^{a·x²}] - α·t² }
//
// It is convex in α, as a maximum of lines, and any α gives a bound. A vector of only one entry is worst at the largest
// t, exactly the units: there is nothing to share, and no norm to round.
func (m *Mechanism) roundingMoment(a, square float64) float64 {
	if m.size == 1 {
		y, f := math.Modf(m.units)
		return a*y*y + math.Log1p(f*math.Expm1(a*(2*y+1)))
	}
	at := func(alpha float64) float64 { return alpha*square + float64(m.size)*m.excess(a, alpha) }
	return at(lowest(at, a, 8*a))
}

// excess returns β(α) of [Mechanism.roundingMoment]. Between the whole numbers y and y+1, with t = y+f, the function is
//
//	ln(1 + f·r) + a·y² - α(y+f)²,   r = e^{a(2y+1)} - 1
//
// This is concave in f, with its peak at 2α(y+f)(1+fr) = r. Where that overflows, excess returns +Inf.
func (m *Mechanism) excess(a, alpha float64) (most float64) {
	for y := 0.0; y < m.units; y++ {
		r := math.Expm1(a * (2*y + 1))
		b, c := 2*alpha*(1+y*r), 2*alpha*y-r
		if math.IsInf(b*b, 1) || math.IsInf(8*alpha*r*c, 0) {
			return math.Inf(1)
		}
		f := min(max(-2*c/(b+math.Sqrt(b*b-8*alpha*r*c)), 0), 1)
		most = max(most, math.Log1p(f*r)+a*y*y-alpha*(y+f)*(y+f))
	}
	return most
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. It is +Inf, because a client may happen to draw no noise, and
// then its messages show its units.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }
