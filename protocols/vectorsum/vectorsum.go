// Package vectorsum adds up one vector of d numbers per client. Every client reports t of its coordinates through
// randomized response in the shuffle model [SCM21] (Algorithms 2 and 3).
//
// The d coordinates are cut into t blocks of d/t, rounded up or down: coordinate l is in block ⌊lt/d⌋. A client maps
// its vector to x ∈ [0, 1]^d. From every block it draws one coordinate l uniformly and rounds x_l·k stochastically to
// {0, …, k}. It sends the message (l, y): y is the rounded number with probability 1-γ, else one of the K = k+1 values,
// drawn uniformly. So it sends t messages, one in each of t lanes. Let s be the size of l's block, n the number of
// messages of the block, and |y_l| the number of those about l. The analyzer estimates
//
//	z_l  = (Σ y/k - |y_l|·γ/2) / (1-γ)              the reporting clients' sum, [SCM21]   (1)
//	Σx_l ≈ n/2 + s·(z_l - |y_l|/2)                  the sum over all clients              (2)
//	Var  = s·v(x_l)/(1-γ)² + (s-1)·(x_l-½)²         one client's part of the variance     (3)
//
// with v the variance of one y/k ([protocols.RoundedVariance]). The paper counts only the first term of (3): the error
// of (1) against the clients that happened to report l. The second term is the variance of sampling the coordinates.
// [Mechanism.Split] returns both, and every predicted variance includes both. The paper's normalisation scales z_l by
// s. That is unbiased too, but its second term is (s-1)·x²: up to four times more. The constant ½ has the least worst
// case.
//
// Guarantee: (ε, δ)-DP by substitution of one client's vector, against a verifier who knows all other vectors, once
// every lane's messages of n_min honest clients are shuffled together. Within its block the reported coordinate is
// secret. So one message is as private as plain randomized response over K values among n clients, without a factor d.
// The t messages of a client are drawn independently, and each is in its own lane. So δ is exactly that of t such
// observations (privacy.go; proofs in docs/proofs/vectors.md). This holds per slot: a first relay may put a client's
// messages into different batches. Participation is not protected. The paper draws its t coordinates from all d without
// replacement, which makes the messages dependent. It sends them as one message, which is not private for t ≥ 2. This
// package does neither.
//
// Rule scm21 takes γ and k from the paper (Theorem 4.1 and section 4.5), for comparison. They add far more noise than
// needed. The claim is still checked by rule exact of package accountant.
//
// Accuracy: the estimates are unbiased. [Mechanism.Worst] returns the worst case of (3), in the largest block. Unless
// the task names t and k, [Protocol.Calibrate] takes t = 1 and a k whose worst case is within 1 % of the least.
//
// Limits: t messages per client. If every relay colludes with the verifier, tε₀-LDP remains, ε₀ = ln(1+K(1-γ)/γ). One
// malicious client moves only one coordinate of each block, by s/(2(1-γ)) of the range, because a message about a
// coordinate of another lane's block is rejected.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
package vectorsum

import (
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "vectorsum"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Bounds of the parameters k and t. Beyond maxK rounding is negligible for any n < 2³²; a task has at most maxT lanes.
const (
	maxK = 1 << 16
	maxT = 1<<16 - 1
)

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task    *task.Task
	d, t, k uint64 // d coordinates, t blocks, and k levels above 0.
	krr     protocols.KRR
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{
		Fast: m.fast,
		Sampling: func(value []float64) ([]float64, error) {
			_, sampling, err := m.Split(value)
			return sampling, err
		},
		Attack: m.attack,
	}
}

// Open returns the mechanism of a task with query vector and parameters gamma, k and t. d is Input.Bins.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkTask(t); err != nil {
		return nil, err
	}
	if len(t.Params) != 3 {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "gamma, k and t")
	}
	k, err := protocols.WholeParam(t, "k", 1, maxK)
	if err != nil {
		return nil, err
	}
	reported, err := protocols.WholeParam(t, "t", 1, min(t.Input.Bins, maxT))
	if err != nil {
		return nil, err
	}
	krr, err := protocols.NewKRR(t, k+1)
	if err != nil {
		return nil, err
	}
	m := &Mechanism{t, t.Input.Bins, reported, k, krr}
	return m, protocols.CheckSlots(t, m.slots())
}

// slots returns the task's slots: one message per client in each block's lane.
func (m *Mechanism) slots() task.Slots {
	return task.Slots{Padding: task.PaddingFull, Lanes: m.t, PerLane: 1,
		MessageBytes: uint64(protocols.Indices(m.d * m.krr.K).Bytes())}
}

// blockOf returns the block of coordinate l.
func (m *Mechanism) blockOf(l uint64) uint64 { return l * m.t / m.d }

// block returns the first coordinate of a block and its size.
func (m *Mechanism) block(b uint64) (first, size uint64) {
	first = (b*m.d + m.t - 1) / m.t
	return first, ((b+1)*m.d+m.t-1)/m.t - first
}

// sizeOf returns the size of the block of coordinate l.
func (m *Mechanism) sizeOf(l int) float64 {
	_, size := m.block(m.blockOf(uint64(l)))
	return float64(size)
}

// largest returns the number of coordinates in the largest block, ⌈d/t⌉.
func (m *Mechanism) largest() float64 { return float64((m.d + m.t - 1) / m.t) }

func checkTask(t *task.Task) error {
	if t.Query != task.Vector {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "vector for protocol vectorsum")
	}
	if t.Rule == string(accountant.Others) { // The proof of that rule covers one count, not d counts.
		return invalid.Field("rule", t.Rule, "exact, revealed or scm21 for protocol vectorsum")
	}
	return nil
}
