package vectorsum

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// RuleSCM21 is the rule by which a task takes the γ and k that [SCM21] publishes. The bound in the paper's proof is not
// used: the claim is checked by rule exact.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
const RuleSCM21 = "scm21"

// target is the claim that the parameters must prove.
type target struct {
	users      uint64 // n_min.
	eps, delta float64
}

func newTarget(t *task.Task) target {
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	return target{t.Batch.Min, eps, delta}
}

// calibrate returns randomized response over k symbols with the γ of the task's rule, if every client sends reported
// messages.
func calibrate(t *task.Task, reported, k uint64) (protocols.KRR, error) {
	if t.Rule == RuleSCM21 {
		gamma, err := newTarget(t).publishedGamma(t.Input.Bins, k-1, reported)
		return protocols.KRR{K: k, Gamma: gamma}, err
	}
	if reported == 1 {
		return protocols.CalibrateKRR(t, k)
	}
	c, err := newComposed(t, reported, k)
	if err != nil {
		return protocols.KRR{}, err
	}
	return protocols.KRR{K: k, Gamma: c.smallest()}, nil
}

// CheckClaim implements [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	t := m.checked()
	if m.t == 1 {
		return m.krr.CheckClaim(t)
	}
	c, err := newComposed(t, m.t, m.krr.K)
	if err != nil {
		return err
	}
	derived, err := c.delta(m.krr.Gamma.Float64())
	if err != nil {
		return err
	}
	if !(derived <= c.goal.delta) {
		return invalid.Field("claim.delta", t.Claim.Delta.String(),
			"at least "+decimal.Up(derived, 7)+", the delta that rule "+t.Rule+" derives for t = "+
				strconv.FormatUint(m.t, 10)+" at epsilon "+t.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(t, m.Law)
}

// checked returns the task with the rule by which its claim is checked: exact if the task's rule is scm21.
func (m *Mechanism) checked() *task.Task {
	if m.task.Rule != RuleSCM21 {
		return m.task
	}
	checked := *m.task
	checked.Rule = string(accountant.Exact)
	return &checked
}

// Law implements [protocols.Mechanism.Law]. It composes the law of one message over the client's t messages.
func (m *Mechanism) Law() (*compose.Law, error) {
	if m.t == 1 {
		return m.krr.Law(m.checked())
	}
	c, err := newComposed(m.checked(), m.t, m.krr.K)
	if err != nil {
		return nil, err
	}
	return c.law(m.krr.Gamma.Float64())
}

// composedBound is the privacy bound for t ≥ 2 messages per client. Each message is one observation of randomized
// response with a secret coordinate, shuffled among n_min clients. Given the values, the messages of all lanes are
// independent. So δ is that of t observations, each dominated by plain randomized response over K values
// (docs/proofs/vectors.md, Theorem 2). It composes t copies of the law of the task's rule, which takes a client a few
// milliseconds. Rule revealed takes much more noise for few clients: at least twice γ unless γ is small.
type composedBound struct {
	goal target
	rule accountant.Rule // accountant.Exact or accountant.Revealed.
	t, k uint64
}

func newComposed(t *task.Task, reported, k uint64) (*composedBound, error) {
	goal := newTarget(t)
	rule := accountant.Rule(t.Rule)
	if rule != accountant.Revealed && rule != accountant.Exact {
		return nil, invalid.Field("rule", invalid.Quote(t.Rule), "revealed, exact or scm21, because t is 2 or more")
	}
	_, err := accountant.KRRDelta(rule, k, 0.5, goal.users, goal.eps)
	return &composedBound{goal, rule, reported, k}, err
}

// law returns the privacy law of all messages of a client together, for γ in (0, 1].
func (c *composedBound) law(gamma float64) (*compose.Law, error) {
	one, err := compose.KRRLaw(c.rule, c.k, gamma, c.goal.users)
	if err != nil {
		return nil, err
	}
	return one.Copies(c.t)
}

// delta returns δ at the claimed ε, for γ in (0, 1]. It is 0 if that ε is at least the ε of t local randomizers.
func (c *composedBound) delta(gamma float64) (float64, error) {
	if float64(c.t)*accountant.KRREpsilon0(c.k, gamma) <= c.goal.eps {
		return 0, nil
	}
	law, err := c.law(gamma)
	if err != nil {
		return 1, err
	}
	return law.Delta(c.goal.eps), nil
}

// smallest returns the least γ, to a relative 2⁻¹⁶, for which δ is at most the claimed δ.
func (c *composedBound) smallest() randomizer.Rational {
	rational := func(gamma float64) randomizer.Rational {
		return randomizer.NewRational(int64(math.Ceil(gamma*0x1p40)), 1<<40)
	}
	e := math.Expm1(c.goal.eps / float64(c.t))
	hi := float64(c.k) / (e + float64(c.k)) * (1 + 1e-9) // here, local privacy alone proves the claim
	return rational(leastGamma(math.Min(hi, 1-0x1p-40), func(gamma float64) float64 {
		derived, err := c.delta(rational(gamma).Float64())
		if err != nil {
			return mostExcess
		}
		return min(max(math.Log(derived/c.goal.delta), -mostExcess), mostExcess)
	}))
}

// leastGamma bisects for the least γ up to hi, to a relative 2⁻¹⁶, at which the excess is at most 0, as it is at hi.
// The excess falls with γ. leastGamma first narrows the range by false position: that takes less than half of the
// evaluations, and the result is the same.
func leastGamma(hi float64, excess func(gamma float64) float64) float64 {
	lo, known := 0.0, gammaRange{excess: excess, good: hi}
	for range 60 {
		mid := math.Sqrt(math.Max(lo, hi*0x1p-8) * hi)
		if mid >= hi*(1-0x1p-16) || mid < 0x1p-39 {
			break
		}
		if known.suffices(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// mostExcess bounds the logarithm of a derived δ divided by the claimed one.
const mostExcess = 60

// gammaRange is what a search knows of the γ that suffice.
type gammaRange struct {
	excess        func(gamma float64) float64 // ln of the derived δ divided by the claimed one. Falls with γ.
	bad, good     float64                     // The largest γ known not to suffice (0: none), and the least that does.
	atBad, atGood float64                     // Their excess; 0 if not evaluated.
	sameEnd       int                         // How many times the same end moved: above 0 good, below 0 bad.
	guesses       int                         // Evaluations by false position so far.
}

// mostGuesses bounds the evaluations by false position. Beyond it, the search only bisects.
const mostGuesses = 24

// suffices reports whether γ suffices. If the range around γ is wide, it first evaluates where the line through both
// ends is 0: that narrows the range for later calls, too.
func (r *gammaRange) suffices(gamma float64) bool {
	for r.bad < gamma && gamma < r.good {
		at := gamma
		if r.atBad > 0 && r.atGood < 0 && r.good > r.bad*(1+0x1p-15) && r.guesses < mostGuesses {
			width, margin := math.Log(r.good/r.bad), 0x1p-19
			at = r.bad * math.Exp(min(max(width*r.atBad/(r.atBad-r.atGood), margin), width-margin))
			r.guesses++
		}
		r.evaluate(at)
	}
	return gamma >= r.good
}

// evaluate moves the end on γ's side to γ. If that end moves again, the excess of the other counts half (the Illinois
// variant of false position).
func (r *gammaRange) evaluate(gamma float64) {
	if excess := r.excess(gamma); excess <= 0 {
		if r.good, r.atGood, r.sameEnd = gamma, min(excess, -1e-12), max(r.sameEnd, 0)+1; r.sameEnd > 1 {
			r.atBad /= 2
		}
	} else if r.bad, r.atBad, r.sameEnd = gamma, excess, min(r.sameEnd, 0)-1; r.sameEnd < -1 {
		r.atGood /= 2
	}
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. It is t times the ε₀ of randomized response.
func (m *Mechanism) Epsilon0() float64 { return float64(m.t) * m.krr.Epsilon0() }

// publishedGamma returns γ as printed in [SCM21], rounded up to a multiple of 2⁻⁴⁰: section 4.5 for t = 1, else Theorem
// 4.1. Where the paper has k, the domain has k+1 values.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
func (g target) publishedGamma(d, k, t uint64) (randomizer.Rational, error) {
	if !(g.eps < 6) {
		return randomizer.Rational{},
			invalid.Field("claim.epsilon", decimal.Format(g.eps, -1), "below 6 for rule scm21")
	}
	need := g.publishedNeed(float64(d), float64(k), float64(t))
	if !(need < float64(g.users-1)*(1-0x1p-40)) {
		return randomizer.Rational{}, invalid.Field("users", strconv.FormatUint(g.users, 10),
			"at least "+decimal.Format(math.Floor(need)+2, 17)+
				" for this dim, k, t, epsilon and delta under rule scm21 (blanket probability below 1)")
	}
	return randomizer.NewRational(int64(math.Ceil(need/float64(g.users-1)*0x1p40)), 1<<40), nil
}

// publishedNeed returns γ(n-1) by the formulas of [SCM21]: section 4.5 for t = 1, else Theorem 4.1.
func (g target) publishedNeed(d, k, t float64) float64 {
	log := math.Log(2 * t / g.delta)
	switch {
	case t > 1 && g.eps < 1:
		return 56 * d * k * math.Log(1/g.delta) * log / (g.eps * g.eps)
	case t > 1:
		return 2016 * d * k * math.Log(1/g.delta) * log / (g.eps * g.eps)
	case g.eps < 1:
		return d * k * max(14*log/(g.eps*g.eps), 27/g.eps)
	}
	return d * k * max(80*log/(g.eps*g.eps), 36/(11*g.eps))
}

// publishedK returns the k of [SCM21] (section 4.5), rounded down to a whole number of at least 1.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
func (g target) publishedK(d uint64) uint64 {
	n, log := float64(g.users)/float64(d), math.Log(2/g.delta)
	cube := min(n*g.eps*g.eps/(28*log), n*g.eps/54)
	if g.eps >= 1 {
		cube = min(n*g.eps*g.eps/(160*log), 11*n*g.eps/72)
	}
	return uint64(min(max(math.Cbrt(cube), 1), maxK))
}
