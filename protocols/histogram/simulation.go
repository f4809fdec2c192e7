package histogram

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. Of the clients with each value, a binomial number report the blanket
// instead: a uniformly random value.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	held := make([]uint64, m.krr.K)
	for _, v := range values {
		x, err := protocols.Category(m.task.Input, v)
		if err != nil {
			return nil, err
		}
		held[x]++
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := &aggregate{krr: m.krr, counts: make([]uint64, m.krr.K), reports: uint64(len(values))}
		blanket := uint64(0)
		for x, n := range held {
			hidden := src.Binomial(n, m.krr.Gamma)
			a.counts[x] += n - hidden
			blanket += hidden
		}
		protocols.Spread(src, blanket, m.krr.K, func(clients, x uint64) { a.counts[x] += clients })
		return a, protocols.FixedCount(a.reports)
	}, nil
}

// attack implements [protocols.Capabilities.Attack]. With max or one-coordinate, a client always reports value 0, which
// moves the count of 0 by 1/(1-γ). With drop-noise, it reports its own value.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	x, err := protocols.Category(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	switch attack {
	case protocols.AttackMax, protocols.AttackOneCoordinate:
		x = 0
	case protocols.AttackDropNoise:
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.krr.Certain(x), nil
}
