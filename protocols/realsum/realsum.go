// Package realsum adds up one real number per client, with fixed-point rounding and randomized response in the shuffle
// model [BBGN19] (section 3.2, Algorithms 2 and 3).
//
// A client maps its value to x in [0, 1] and rounds it stochastically to x̄ in {0, …, k}. It sends y = x̄ with
// probability 1-γ, and otherwise one of the K = k+1 values, drawn uniformly. With f the fractional part of xk and n
// reports, the analyzer estimates
//
//	Σx ≈ (Σ y/k - nγ/2) / (1-γ)                                                  (1)
//	v(x) = (1-γ)·f(1-f)/k² + γ(k+2)/(12k) + γ(1-γ)(x-½)²,  variance of one y/k    (2)
//
// The answers to queries count (x is 0 or 1, k = 1), sum and mean all follow from (1).
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all other values, once the
// messages of n_min honest clients are shuffled together. The task's rule (package accountant) calibrates γ for K = k+1
// symbols; where this package has K, the paper has k. Participation is not protected.
//
// Accuracy: the estimate is unbiased. Its mean squared error is Σv(x)/(1-γ)². That is at most n·v* / (1-γ)², with v*
// the maximum of v (see worstFraction). [Protocol.Calibrate] chooses k and γ together to minimise this bound, with the
// exact γ needed for each k. The paper's k = (n/c)^{1/3} gives only the rate, O(n^{1/3}), which matches its lower bound
// for one message.
//
// Limits: one message per client. If every relay colludes with the verifier, ε₀-LDP remains, ε₀ = ln(1+K(1-γ)/γ). One
// malicious client moves the sum by at most 1/(1-γ) of the range.
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
package realsum

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "realsum"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// maxK is the largest number k of fixed-point levels above 0. Beyond it rounding is negligible for any n < 2³².
const maxK = 1 << 16

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	k    uint64 // Number of levels above 0; a message has K = k+1 values.
	krr  protocols.KRR
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{Fast: m.fast, Attack: m.attack}
}

// Open returns the mechanism of a task with query count, sum or mean and parameters gamma and k.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	levels, ok := t.Param("k")
	if !ok || levels.Den != 1 || levels.Num < 1 || levels.Num > maxK || len(t.Params) != 2 {
		return nil, invalid.Field("params.k", levels.String(), "a whole number from 1 to "+strconv.Itoa(maxK)+
			", and gamma as the only other parameter")
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

func checkQuery(t *task.Task) error {
	if t.Query != task.Count && t.Query != task.Sum && t.Query != task.Mean {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "count, sum or mean for protocol realsum")
	}
	return nil
}
