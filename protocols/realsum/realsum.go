// Package realsum adds up one real number per client: fixed-point rounding and randomized
// response in the shuffle model [BBGN19] (section 3.2, Algorithm 2 and 3).
//
// A client maps its value to x in [0, 1], rounds it stochastically to x̄ in {0, …, k}, and sends y =
// x̄ with probability 1-γ, else a uniform one of the K = k+1 values. With f the fractional part of
// xk and n reports, the analyzer estimates
//
//	Σx ≈ (Σ y/k - nγ/2) / (1-γ)                                                  (1)
//	v(x) = (1-γ)·f(1-f)/k² + γ(k+2)/(12k) + γ(1-γ)(x-½)²,  variance of one y/k    (2)
//
// Queries count (x is 0 or 1, k = 1), sum and mean are views of (1).
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all
// other values, once the messages of n_min honest clients are shuffled together; γ is calibrated
// for K = k+1 by the task's rule (package accountant). The paper uses k for K here.
// Participation is not protected.
//
// Accuracy: unbiased; mean squared error Σv(x)/(1-γ)², at most n·v* / (1-γ)² with v* the maximum of
// v (see worst). [Calibrate] chooses k and γ together to minimise that under the exact γ(k); the
// paper's k = (n/c)^{1/3} is only its rate, O(n^{1/3}), which matches its lower bound for one message.
//
// Limits: one message per client. If every relay colludes with the verifier, ε₀-LDP remains,
// ε₀ = ln(1+K(1-γ)/γ). One malicious client moves the sum by at most 1/(1-γ) of the range.
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
package realsum

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "realsum"

// maxK bounds the fixed-point levels: beyond it rounding is negligible for any n < 2³².
const maxK = 1 << 16

// Mechanism is the protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	k    uint64 // Levels above 0; the domain has K = k+1 values.
	krr  protocols.KRR
}

// New returns the mechanism of a task: query count, sum or mean, parameters gamma and k.
func New(t *task.Task) (protocols.Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	levels, ok := t.Param("k")
	if !ok || levels.Den != 1 || levels.Num < 1 || levels.Num > maxK || len(t.Params) != 2 {
		return nil, invalid.Field("params.k", levels.String(), "a whole number from 1 to "+strconv.Itoa(maxK)+", and gamma")
	}
	k := uint64(levels.Num)
	if t.Query == task.Count && k != 1 {
		return nil, invalid.Field("params.k", levels.String(), "1 for a count")
	}
	krr, err := protocols.NewKRR(t, k+1)
	if err != nil {
		return nil, err
	}
	return &Mechanism{t, k, krr}, protocols.CheckSlots(t, krr.Slots())
}

// Calibrate sets the parameters and slots of a task whose query, input, claim and batch are set: the
// k, and the smallest γ that proves the claim for it, which minimise the worst-case mean squared
// error. γ is that of the task's rule. Where it has none it gets the tightest for k+1 values.
func Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	best, err := candidate(t, 1)
	if err != nil {
		return err
	}
	if t.Query != task.Count {
		best = searchK(t, best)
	}
	t.Rule = protocols.RuleKRR(t, best.krr.K)
	t.Params = []task.Param{
		{Key: "gamma", Value: best.krr.Gamma},
		{Key: "k", Value: randomizer.NewRational(int64(best.k), 1)},
	}
	t.Slots = best.krr.Slots()
	return nil
}

// candidate returns the mechanism with k levels and its smallest γ.
func candidate(t *task.Task, k uint64) (*Mechanism, error) {
	krr, err := protocols.CalibrateKRR(t, k+1)
	return &Mechanism{t, k, krr}, err
}

// searchK returns the mechanism of least worst-case variance, given the one for k = 1. That stands
// apart, as two values have a rule of their own. From k = 2 on the error falls and then rises, so the
// search doubles k until it rises and then narrows by thirds. A k that no γ < 1 makes private, or
// that the rule does not cover, counts as infinitely bad.
func searchK(t *task.Task, first *Mechanism) *Mechanism {
	known := map[uint64]*Mechanism{1: first}
	cost := func(k uint64) float64 {
		m, ok := known[k]
		if !ok {
			m, _ = candidate(t, k)
			known[k] = m
		}
		if m.krr.Gamma.Den == 0 {
			return infinity
		}
		return m.WorstVariance()
	}
	lo, hi := uint64(2), uint64(4)
	for hi < maxK && cost(hi) < cost(hi/2) {
		lo, hi = hi/2, hi*2
	}
	for hi-lo > 2 {
		third := (hi - lo) / 3
		if cost(lo+third) <= cost(hi-third) {
			hi -= third
		} else {
			lo += third
		}
	}
	best := uint64(1)
	for k := lo; k <= hi; k++ {
		if cost(k) < cost(best) {
			best = k
		}
	}
	return known[best]
}

func checkQuery(t *task.Task) error {
	if t.Query != task.Count && t.Query != task.Sum && t.Query != task.Mean {
		return invalid.Field("query", strconv.Quote(t.Query), "count, sum or mean for protocol realsum")
	}
	return nil
}
