//go:build doona_set

package augmented

import (
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// SetProtocol is [Protocol] for doona-set.wasm, which needs both the claim and the law of each table: a mechanism
// derives its curve once for both. WebAssembly has one thread, so mechanisms need no lock.
type SetProtocol struct{ Protocol }

// Open is [Protocol.Open].
func (p *SetProtocol) Open(t *task.Task) (protocols.Mechanism, error) {
	m, err := p.Protocol.Open(t)
	if err != nil {
		return nil, err
	}
	return &setMechanism{m.(*Mechanism), nil}, nil
}

type setMechanism struct {
	*Mechanism
	law *compose.Law // Nil until CheckClaim proved the claim of one epoch.
}

// CheckClaim is [Mechanism.CheckClaim]. A table of a set has no claim over all epochs.
func (m *setMechanism) CheckClaim() error {
	curve, err := relaynoise.New(m.task.Noise)
	if err != nil {
		return err
	}
	curve = curve.Local(m.gamma())
	claim := m.task.Claim
	if !claim.Total.IsZero() || !(curve.Delta(claim.Epsilon.Value()) <= claim.Delta.Value()) {
		return m.Mechanism.CheckClaim()
	}
	m.law = curve.Law()
	return nil
}

// Law is [Mechanism.Law].
func (m *setMechanism) Law() (*compose.Law, error) {
	if m.law == nil {
		return m.Mechanism.Law()
	}
	return m.law, nil
}
