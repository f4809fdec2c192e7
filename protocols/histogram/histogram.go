// Package histogram counts how many clients hold each of K values: k-ary randomized response in
// the shuffle model [BBGN19].
//
// A client with value x reports y = x with probability 1-γ, and otherwise one of the K values, drawn uniformly. Of n
// reports, N_j are equal to j. The analyzer estimates c_j, the number of clients that hold j:
//
//	ĉ_j = (N_j - nγ/K) / (1-γ)                                              (1)
//	Var ĉ_j = [c_j·p(1-p) + (n-c_j)·q(1-q)] / (1-γ)²,  p = 1-γ+γ/K, q = γ/K (2)
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all
// other values, once the messages of n_min honest clients are shuffled together; γ is calibrated
// by the task's rule (package accountant). Participation is not protected.
//
// Accuracy: the estimates are unbiased. The worst-case variance of one count is nγ(K-1)/K·p/(1-γ)². It does not depend
// on how the other values are spread.
//
// Limits: one message per client. If every relay colludes with the verifier, ε₀-LDP remains, with ε₀ = ln(1+K(1-γ)/γ).
// One malicious client moves each count by at most 1/(1-γ).
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
package histogram

import (
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
	"strconv"
)

// Name is the protocol's name in tasks.
const Name = "histogram"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	krr  protocols.KRR
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{
		Bins:   func(a protocols.Aggregate) protocols.Bins { return a.(*aggregate) },
		Fast:   m.fast,
		Attack: m.attack,
	}
}

// Open returns the mechanism of a task with query histogram and parameter gamma. K is Input.Bins.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	krr, err := protocols.NewKRR(t, t.Input.Bins)
	if err != nil {
		return nil, err
	}
	if len(t.Params) != 1 {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "one parameter, gamma")
	}
	return &Mechanism{t, krr}, protocols.CheckSlots(t, krr.Slots())
}

func checkQuery(t *task.Task) error {
	if t.Query != task.Histogram {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "histogram for protocol histogram")
	}
	return nil
}
