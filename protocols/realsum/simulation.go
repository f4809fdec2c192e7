package realsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. Of the clients with each value, a binomial number report the blanket:
// a uniformly random level. Of the others, a binomial number round up and the rest round down.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := protocols.RoundingGroups(values, m.k,
		func(v []float64) (float64, error) { return protocols.Number(m.task, v) })
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a, blanket := &aggregate{m: m, reports: uint64(len(values))}, uint64(0)
		for _, g := range groups {
			blanket += g.Answers(src, m.krr.Gamma, a.add)
		}
		protocols.Spread(src, blanket, m.krr.K, a.add)
		return a, protocols.FixedCount(a.reports)
	}, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, a client always reports level k, which moves the sum by
// up to 1/(1-γ) of the range. With drop-noise, it reports its own value, rounded.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	switch attack {
	case protocols.AttackMax:
		return m.krr.Certain(m.k), nil
	case protocols.AttackDropNoise:
		return m.krr.Certain(src.Round(randomizer.Fixed(x), m.k)), nil
	}
	return nil, protocols.UnknownAttack(attack, "max or drop-noise")
}
