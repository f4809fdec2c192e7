// Package splitmix adds up one real number per client, with nearly the error of a trusted curator: split and mix
// ([IKOS06]) with Pólya noise in the shuffle model [BBGN19b] (Algorithms 1 and 2).
//
// A client maps its value to x in [0, 1], rounds xp stochastically to x̃ in {0, …, p}, and adds noise:
//
//	y = x̃ + Pólya(1/n_min, α) - Pólya(1/n_min, α),   α = e^{-s}              (1)
//
// It then sends m messages, the shares: uniform numbers below q that add up to y mod q. With z the sum mod q of all
// messages of a batch of n clients, the analyzer estimates
//
//	Σx ≈ (z - q·1{z > (np+q)/2}) / p                                          (2)
//	Var = Σ f(1-f)/p² + n/n_min · 2α/((1-α)²p²),  f the fractional part of xp (3)
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all other values, once the
// messages of n_min honest clients are shuffled together:
//
//	ε = s·p,   δ = (1+e^ε)·SD                                                 (4)
//
// The noise of n_min clients adds up to a discrete Laplace variable, which is ε-DP. SD is the statistical distance
// between the shuffled shares and a function of their sum. One of the rules bounds it ([RulePaper], [RuleRoot],
// [RuleComponents]; privacy.go, docs/proofs/splitmix.md). A first relay may put the shares of a client into different
// batches. Then δ by the default rule still holds if only one batch of the epoch is released; for more batches nothing
// is proven (docs/proofs/slots.md). Participation is not protected.
//
// Accuracy: the estimate is unbiased unless the sum wraps around. It wraps around if the noise exceeds (q-np)/2, with a
// probability of at most [MaxWrap] per batch. The variance (3) is that of the central discrete Laplace mechanism times
// n/n_min, plus rounding. [Protocol.Calibrate] takes a p for which rounding adds at most 2 % to the variance.
//
// Limits: m messages per client, all of which must arrive. One lost, repeated or forged share makes the sum any number
// mod q. Nobody can detect it if the number of messages is right; the verifier refuses a batch with a wrong number
// ([aggregate.checkComplete]). One malicious client can therefore set the estimate to anything. If every relay colludes
// with the verifier, nothing protects a client: its shares add up to its value and a little noise (ε₀ = +Inf).
//
// [BBGN19b]: https://arxiv.org/abs/1906.09116 [IKOS06]: https://doi.org/10.1109/FOCS.2006.25
package splitmix

import (
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "splitmix"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Bounds of the parameters. Within them, products of n, p and q stay exact in float64 and in 64 bits.
const (
	maxP = 1 << 31
	maxQ = 1 << 56
	maxM = 65535 // A lane has at most this many slots per client.
)

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task    *task.Task
	m, p, q uint64              // m messages per client, p levels above 0, modulus q.
	s       randomizer.Rational // Exponent of the noise: α = e^{-s}.
	noise   *randomizer.Superposition
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{
		CheckComplete: func(a protocols.Aggregate, users uint64) error { return a.(*aggregate).checkComplete(users) },
		Reach:         m.reach,
		OneSetsAll:    true, // One client can set a sum mod q to any value.
		Fast:          m.fast,
		Attack:        m.attack,
	}
}

// Open returns the mechanism of a task with query count, sum or mean and parameters m, p, q and s.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := protocols.CheckNumber(t); err != nil {
		return nil, err
	}
	if len(t.Params) != 4 {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "m, p, q and s")
	}
	if err := checkRule(t.Rule); err != nil {
		return nil, err
	}
	p, err := protocols.WholeParam(t, "p", 1, maxP)
	if err != nil {
		return nil, err
	}
	if t.Query == task.Count && p != 1 {
		return nil, invalid.Field("params.p", strconv.FormatUint(p, 10), "1 for a count")
	}
	s, ok := t.Param("s")
	if !ok || s.Num <= 0 || s.Float64() < 2*randomizer.MinRate.Float64() || s.Float64() > 100 {
		return nil, invalid.Field("params.s", s.String(), "a rational from 2^-39 to 100: epsilon divided by p")
	}
	m, err := protocols.WholeParam(t, "m", 1, maxM)
	if err != nil {
		return nil, err
	}
	q, err := protocols.WholeParam(t, "q", 2, maxQ)
	if err != nil {
		return nil, err
	}
	mech := newMechanism(t, m, p, q, s)
	if least := mech.leastQ(); q < least {
		return nil, invalid.Field("params.q", strconv.FormatUint(q, 10),
			"at least "+strconv.FormatUint(least, 10)+", so that the noise rarely wraps around")
	}
	return mech, protocols.CheckSlots(t, mech.slots())
}

// newMechanism returns the mechanism with the given parameters, which the caller has checked.
func newMechanism(t *task.Task, m, p, q uint64, s randomizer.Rational) *Mechanism {
	jumps := randomizer.NewJumps(s, 0)
	signs := []randomizer.Atom{{Weight: 1, Jumps: jumps}, {Weight: 1, Jumps: jumps}}
	return &Mechanism{t, m, p, q, s, randomizer.NewSuperposition(signs, t.Batch.Min)}
}

// slots returns the task's slots: m messages per client, all in one lane.
func (m *Mechanism) slots() task.Slots {
	return task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: m.m,
		MessageBytes: uint64(protocols.Indices(m.q).Bytes())}
}

// ceilLog2 returns ⌈log₂ v⌉, v ≥ 1.
func ceilLog2(v uint64) float64 { return float64(bits.Len64(v - 1)) }
