package vectorgrid

import (
	"encoding/binary"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. Of the clients with each vector, a binomial number report the blanket:
// a uniformly random point. Of the others, a binomial number round up in each coordinate.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := m.group(values)
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a, blanket := m.Aggregate().(*aggregate), uint64(0)
		for _, g := range groups {
			hidden := src.Binomial(g.clients, m.krr.Gamma)
			for j, u := range g.vector {
				whole, up := randomizer.Rounding(u, m.r)
				rounded := src.Binomial(g.clients-hidden, up)
				a.add(j, g.clients-hidden-rounded, whole)
				a.add(j, rounded, whole+1)
			}
			blanket += hidden
		}
		for j := range a.sums { // every coordinate of a uniformly random point is uniform
			protocols.Spread(src, blanket, m.r+1, func(clients, level uint64) { a.add(j, clients, level) })
		}
		a.reports = uint64(len(values))
		return a, protocols.FixedCount(a.reports)
	}, nil
}

// group stands for simulated clients with the same vector, in fixed point.
type group struct {
	clients uint64
	vector  []uint64
}

// group groups clients with equal vectors.
func (m *Mechanism) group(values [][]float64) (groups []group, err error) {
	known := map[string]int{}
	for _, v := range values {
		u, err := m.unit(v)
		if err != nil {
			return nil, err
		}
		g, name := group{}, []byte{}
		for _, x := range u {
			g.vector = append(g.vector, randomizer.Fixed(x))
			name = binary.BigEndian.AppendUint64(name, randomizer.Fixed(x))
		}
		i, ok := known[string(name)]
		if !ok {
			i = len(groups)
			known[string(name)] = i
			groups = append(groups, g)
		}
		groups[i].clients++
	}
	return groups, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, a client reports the corner of the grid where every
// coordinate is largest. For vectormean, this point is √d times as far from 0 as a valid vector can be. With
// one-coordinate, it reports its own vector with the first coordinate replaced by the largest value. With drop-noise,
// it reports its own vector, rounded.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	u, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	switch attack {
	case protocols.AttackMax:
		for j := range u {
			u[j] = 1
		}
	case protocols.AttackOneCoordinate:
		u[0] = 1
	case protocols.AttackDropNoise:
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.krr.Certain(m.point(src, u)), nil
}
