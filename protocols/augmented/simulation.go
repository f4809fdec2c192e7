package augmented

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// fast implements [protocols.Capabilities.Fast]. It draws the rounding and randomized response of all clients with the
// same value at once. It draws no dummies.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := m.groups(values)
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a, blanket := m.newAggregate(), uint64(0)
		for _, g := range groups {
			blanket += g.Answers(src, m.krr.Gamma, a.add)
		}
		protocols.Spread(src, blanket, m.krr.K, a.add)
		return a, protocols.FixedCount(uint64(len(values)))
	}, nil
}

// groups groups the clients by value. The bins of a histogram are levels that need no rounding.
func (m *Mechanism) groups(values [][]float64) ([]protocols.RoundingGroup, error) {
	if m.task.Query != task.Histogram {
		return protocols.RoundingGroups(values, m.krr.K-1,
			func(v []float64) (float64, error) { return protocols.Number(m.task, v) })
	}
	groups := make([]protocols.RoundingGroup, m.krr.K)
	for j := range groups {
		groups[j] = protocols.RoundingGroup{Whole: uint64(j), Up: randomizer.NewRational(0, 1)}
	}
	for _, v := range values {
		j, err := protocols.Category(m.task.Input, v)
		if err != nil {
			return nil, err
		}
		groups[j].Clients++
	}
	return groups, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, a client sends the highest cell; with one-coordinate,
// cell 0. With drop-noise, it sends its value without local randomization.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	cell, err := m.cell(src, value)
	if err != nil {
		return nil, err
	}
	switch attack {
	case protocols.AttackMax:
		cell = m.krr.K - 1
	case protocols.AttackOneCoordinate:
		cell = 0
	case protocols.AttackDropNoise:
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.krr.Certain(cell), nil
}
