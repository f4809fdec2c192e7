package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
)

// Rule is the name of the protocol's only rule: exact composition over the counters.
const Rule = "composed"

// CheckClaim is [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	eps, err := m.task.Claim.EpsilonValue()
	if err != nil {
		return err
	}
	delta, err := m.task.Claim.DeltaValue()
	if err != nil {
		return err
	}
	if m.task.Rule != Rule {
		return invalid.Field("rule", strconv.Quote(m.task.Rule), Rule+" for protocol vectormean")
	}
	if derived := m.delta(eps, delta); !(derived <= delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta,
			"at least "+strconv.FormatFloat(derived, 'g', 4, 64)+", the delta that rule "+Rule+" derives at epsilon "+m.task.Claim.Epsilon)
	}
	return nil
}

// delta returns an upper bound on δ(eps) that resolves values around scale: for every bit, N
// counters for each side with noise Bin(n_min·m_i, q_i), each of which another vector of one client
// moves by 1 at most. Its own noise is among the n_min: it does not depend on the vector.
func (m *Mechanism) delta(eps, scale float64) float64 {
	var pairs []compose.Observation
	for _, n := range m.noise {
		if float64(m.task.Batch.Min)*n.variance() > compose.MaxVariance {
			return 1 // more noise than anybody needs, and than can be summed up in memory
		}
		counter := compose.NewBinomial(m.task.Batch.Min*n.trials, n.chance.Float64())
		pairs = append(pairs, compose.Observation{Delta: counter.Delta, Count: uint64(m.frame.size) * m.sides})
	}
	return compose.Delta(pairs, eps, scale)
}

// Epsilon0 is [protocols.Mechanism.Epsilon0]: there is none. A client that sent a message of no kind
// but those of its ones shows them.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }
