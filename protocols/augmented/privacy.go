package augmented

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// CheckClaim implements [protocols.Mechanism.CheckClaim]. It checks the claim of one epoch, and the total over all
// epochs if the task claims one. One batch's dummies prove the claim of an epoch, because a client is in only one of
// the epoch's batches.
func (m *Mechanism) CheckClaim() error {
	curve, err := relaynoise.New(m.task.Noise)
	if err != nil {
		return err
	}
	curve = curve.Local(m.gamma())
	claim := m.task.Claim
	if derived := curve.Delta(claim.Epsilon.Value()); !(derived <= claim.Delta.Value()) {
		return tooSmall("claim.delta", claim.Delta.String(), derived, claim.Epsilon.String())
	}
	if claim.Total.IsZero() {
		return nil
	}
	total := relaynoise.Target{
		Epsilon: claim.Total.Epsilon.Value(), Delta: claim.Total.Delta.Value(),
		Epochs: m.task.MostCopies(m.task.Epochs.Count),
	}
	if derived := total.Total(curve); !(derived <= total.Delta) {
		return tooSmall("claim.total.delta", claim.Total.Delta.String(), derived, claim.Total.Epsilon.String())
	}
	return nil
}

// Law implements [protocols.Mechanism.Law].
func (m *Mechanism) Law() (*compose.Law, error) {
	curve, err := relaynoise.New(m.task.Noise)
	if err != nil {
		return nil, err
	}
	return curve.Local(m.gamma()).Law(), nil
}

func tooSmall(field, delta string, derived float64, eps string) error {
	return invalid.Field(field, delta, "at least "+decimal.Up(derived, 7)+", the delta of the noise at epsilon "+
		eps)
}

// honestEpsilon implements [protocols.Capabilities.EpsilonHonest]. It returns the claimed ε or, if that is less, the ε
// of local randomization among this many honest clients. The latter may ignore dummies, because adding them is
// post-processing.
func (m *Mechanism) honestEpsilon(honest uint64, delta float64) float64 {
	claimed, rule := m.task.Claim.Epsilon.Value(), accountant.Exact
	if m.gamma() == 0 {
		return claimed
	}
	if m.krr.K == 2 {
		rule = accountant.Others
	}
	eps, err := accountant.KRREpsilon(rule, m.krr.K, m.gamma(), honest, delta)
	if err != nil { // for example, too few clients for the rule
		return claimed
	}
	return min(eps, claimed)
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. It is the ε₀ of local randomization, or +Inf if the task has
// none.
func (m *Mechanism) Epsilon0() float64 {
	if m.gamma() == 0 {
		return math.Inf(1)
	}
	return m.krr.Epsilon0()
}
