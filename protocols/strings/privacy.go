package strings

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
)

// CheckClaim implements [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error {
	t := m.task
	if t.Noise == nil {
		return m.krr.CheckClaim(t)
	}
	derived, err := accountant.PoolDelta(m.plan.b, t.Noise.Pool, t.Claim.Epsilon.Value())
	if err != nil {
		return err
	}
	if !(derived <= t.Claim.Delta.Value()) {
		return invalid.Field("claim.delta", t.Claim.Delta.String(), "at least "+decimal.Up(derived, 7)+
			", the delta that the pool gives at epsilon "+t.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(t, m.Law)
}

// Law implements [protocols.Mechanism.Law].
func (m *Mechanism) Law() (*compose.Law, error) {
	if m.task.Noise == nil {
		return m.krr.Law(m.task)
	}
	return compose.PoolLaw(m.plan.b, m.task.Noise.Pool), nil
}

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. With noise by clients it is the ε₀ of randomized response over
// the cells of one table. With noise by relays it is +Inf.
func (m *Mechanism) Epsilon0() float64 {
	if m.task.Noise != nil {
		return math.Inf(1)
	}
	return m.krr.Epsilon0()
}
