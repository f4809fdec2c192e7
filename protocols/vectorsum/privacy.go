package vectorsum

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/task"
)

// RuleSCM21 names the γ and k that [SCM21] publishes. The bound its proof gives is not used: the
// claim is checked by rule exact.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
const RuleSCM21 = "scm21"

// target is what a task claims.
type target struct {
	users      uint64 // n_min.
	eps, delta float64
}

func newTarget(t *task.Task) (target, error) {
	eps, err := t.Claim.EpsilonValue()
	if err != nil {
		return target{}, err
	}
	delta, err := t.Claim.DeltaValue()
	return target{t.Batch.Min, eps, delta}, err
}

// calibrate returns randomized response over k symbols with the γ of the task's rule for clients
// that report the given number of coordinates.
func calibrate(t *task.Task, reported, k uint64) (protocols.KRR, error) {
	if t.Rule == RuleSCM21 {
		goal, err := newTarget(t)
		if err != nil {
			return protocols.KRR{}, err
		}
		gamma, err := goal.publishedGamma(t.Input.Bins, k-1, reported)
		return protocols.KRR{K: k, Gamma: gamma}, err
	}
	if reported == 1 {
		return protocols.CalibrateKRR(t, k)
	}
	return protocols.KRR{}, invalid.Field("params.t", strconv.FormatUint(reported, 10), "1")
}

// CheckClaim is [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	t := m.task
	if t.Rule == RuleSCM21 {
		checked := *t
		checked.Rule = string(accountant.Exact)
		t = &checked
	}
	if m.t == 1 {
		return m.krr.CheckClaim(t)
	}
	return invalid.Field("params.t", strconv.FormatUint(m.t, 10), "1")
}

// Epsilon0 is [protocols.Mechanism.Epsilon0]: that of randomized response for each coordinate.
func (m *Mechanism) Epsilon0() float64 { return float64(m.t) * m.krr.Epsilon0() }

// publishedGamma returns γ as printed in [SCM21], rounded up to a multiple of 2⁻⁴⁰: section 4.5 for
// t = 1 and Theorem 4.1 else. It has k where the domain has k+1 values.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
func (g target) publishedGamma(d, k, t uint64) (randomizer.Rational, error) {
	if !(g.eps < 6) {
		return randomizer.Rational{}, invalid.Field("claim.epsilon", strconv.FormatFloat(g.eps, 'g', -1, 64), "below 6 for rule scm21")
	}
	need := g.publishedNeed(float64(d), float64(k), float64(t))
	if !(need < float64(g.users-1)*(1-0x1p-40)) {
		return randomizer.Rational{}, invalid.Field("users", strconv.FormatUint(g.users, 10),
			"at least "+strconv.FormatFloat(math.Floor(need)+2, 'f', 0, 64)+" for this dim, k, t, epsilon and delta under rule scm21 (blanket probability below 1)")
	}
	return randomizer.NewRational(int64(math.Ceil(need/float64(g.users-1)*0x1p40)), 1<<40), nil
}

// publishedNeed returns γ(n-1).
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

// publishedK returns the k of [SCM21] (section 4.5) rounded down, at least 1.
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
