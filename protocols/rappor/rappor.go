// Package rappor adds up one whole number per client by fragmented RAPPOR in the shuffle model [EPK14], [EFMRSTT20]. It
// is the baseline that [GKMPS21] compares with (Figure 1).
//
// A client maps its value to x in {0, …, k}, by stochastic rounding if necessary. It writes x as k bits, of which only
// bit x is one (none for 0). It flips each bit with probability f, and sends the index of every bit that is then one as
// a message of its own. The analyzer adds up the indices j that n clients send:
//
//	Σx ≈ (Σ j - n·f·k(k+1)/2) / (1-2f)                                              (1)
//	Var = n·f(1-f)/(1-2f)² · k(k+1)(2k+1)/6 + Σ of the rounding variances, in levels  (2)
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all other values, once the
// messages of n_min honest clients are shuffled together. δ holds for the worst values of the other clients
// ([RuleOthers], privacy.go): all others hold the client's value. Many implementations calibrate for others that all
// hold 0; the true δ is then almost five times the claim. docs/proofs/slots.md, section 3, covers a first relay that
// puts the messages of a client into different batches. Participation is not protected.
//
// Accuracy: the estimate is unbiased, with variance (2). The variance hardly depends on δ once n is large, but the
// standard error grows as k^{3/2} in levels. [Protocol.Calibrate] chooses the k with the least worst case unless the
// task names one. For whole numbers 0..Δ, name k = Δ.
//
// Limits: a client sends up to 1 + kf messages on average; [Protocol.Calibrate] provides B slots. So the client redraws
// its flips until there are at most B-1. δ includes the cost:
//
//	δ gains (1+e^ε)·n·τ ≤ δ/100,   τ = Pr[Bin(k, f) > B-1]                           (3)
//
// Padding is always full. If every relay colludes with the verifier, a local ε₀ of 2·ln((1-f)/f) remains (half of it
// for k = 1), except with probability τ, that a client's first draw of flips did not fit. If B = k, all flips fit and
// ε₀ is finite; else it is +Inf. One malicious client moves the sum by at most B/(1-2f) times the range.
//
// [EFMRSTT20]: https://arxiv.org/abs/2001.03618 [EPK14]: https://arxiv.org/abs/1407.6981 [GKMPS21]:
// https://arxiv.org/abs/2109.13158
package rappor

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "rappor"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// maxK is the largest number k of levels above 0. More levels would not help: for a given range, the error grows with
// √k.
const maxK = 1 << 12

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	k    uint64              // Number of levels above 0, and of bits.
	b    uint64              // Slots per client, B.
	f    randomizer.Rational // Probability that a bit is flipped.
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{Fast: m.fast, Attack: m.attack}
}

// Open returns the mechanism of a task with query count, sum or mean and parameters f and k.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkTask(t); err != nil {
		return nil, err
	}
	if len(t.Params) != 2 {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "f and k")
	}
	k, err := protocols.WholeParam(t, "k", 1, maxLevels(t))
	if err != nil {
		return nil, err
	}
	f, ok := t.Param("f")
	if !ok || f.Num <= 0 || f.Num >= 1<<53 || 2*f.Float64() >= 1 || f.Den&(f.Den-1) != 0 || f.Den > 1<<62 {
		return nil, invalid.Field("params.f", f.String(),
			"a rational in (0, 1/2), numerator below 2^53, denominator a power of two up to 2^62")
	}
	if t.Slots.PerLane > k {
		return nil, invalid.Field("slots.perLane", strconv.FormatUint(t.Slots.PerLane, 10),
			"at most k = "+strconv.FormatUint(k, 10))
	}
	m := &Mechanism{t, k, t.Slots.PerLane, f}
	return m, protocols.CheckSlots(t, m.slots())
}

// maxLevels returns the largest k of a task: 1 for a count.
func maxLevels(t *task.Task) uint64 {
	if t.Query == task.Count {
		return 1
	}
	return maxK
}

func checkTask(t *task.Task) error {
	if t.Rule != RuleOthers {
		return invalid.Field("rule", invalid.Quote(t.Rule), RuleOthers+" for protocol rappor")
	}
	return protocols.CheckNumber(t)
}

// slots returns the task's slots: B per client, all in one lane.
func (m *Mechanism) slots() task.Slots {
	return task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: m.b,
		MessageBytes: uint64(protocols.Indices(m.k).Bytes())}
}

// overflowShare is the part of δ that flips which do not fit the slots may cost.
const overflowShare = 0.01
