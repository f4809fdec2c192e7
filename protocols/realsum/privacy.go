package realsum

import "github.com/doona-dp/doona/accountant/compose"

// CheckClaim implements [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error { return m.krr.CheckClaim(m.task) }

// Law implements [protocols.Mechanism.Law].
func (m *Mechanism) Law() (*compose.Law, error) { return m.krr.Law(m.task) }

// Epsilon0 implements [protocols.Mechanism.Epsilon0].
func (m *Mechanism) Epsilon0() float64 { return m.krr.Epsilon0() }
