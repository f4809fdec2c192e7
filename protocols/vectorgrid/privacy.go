package vectorgrid

// CheckClaim is [protocols.Mechanism.CheckClaim].
func (m *Mechanism) CheckClaim() error { return m.krr.CheckClaim(m.task) }

// Epsilon0 is [protocols.Mechanism.Epsilon0].
func (m *Mechanism) Epsilon0() float64 { return m.krr.Epsilon0() }
