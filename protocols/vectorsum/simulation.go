package vectorsum

import (
	"encoding/binary"
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. It draws how many of the clients with equal vectors report each
// coordinate of a block: multinomial numbers. Of the clients who report the same value of the same coordinate, a
// binomial number report the blanket. A binomial number of the others round up.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	c, err := m.newSimulation(values)
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := m.Aggregate().(*aggregate)
		for b := range a.messages {
			c.report(src, a, b)
		}
		return a, protocols.FixedCount(m.t * uint64(len(values)))
	}, nil
}

// simulatedClients holds the simulated clients in two ways: for every coordinate, groups of clients with equal values;
// and clients with equal vectors.
type simulatedClients struct {
	m            *Mechanism
	groups       [][]protocols.RoundingGroup
	equalClients []equalClients
}

// equalClients stands for simulated clients with equal vectors. member[l] is the index of their group at coordinate l.
type equalClients struct {
	clients uint64
	member  []uint32
}

func (m *Mechanism) newSimulation(values [][]float64) (*simulatedClients, error) {
	c := &simulatedClients{m: m, groups: make([][]protocols.RoundingGroup, m.d)}
	known, vectors := make([]map[uint64]uint32, m.d), map[string]int{}
	for l := range known {
		known[l] = map[uint64]uint32{}
	}
	for _, v := range values {
		x, err := protocols.Vector(m.task.Input, v)
		if err != nil {
			return nil, err
		}
		name := make([]byte, 0, 8*len(x))
		for _, u := range x {
			name = binary.BigEndian.AppendUint64(name, randomizer.Fixed(u))
		}
		i, ok := vectors[string(name)]
		if !ok {
			i = len(c.equalClients)
			vectors[string(name)] = i
			c.equalClients = append(c.equalClients, equalClients{member: c.vectorGroups(known, x)})
		}
		c.equalClients[i].clients++
	}
	return c, nil
}

// vectorGroups returns the index of the vector's group at every coordinate. It adds groups for values that are new.
func (c *simulatedClients) vectorGroups(known []map[uint64]uint32, x []float64) []uint32 {
	member := make([]uint32, len(x))
	for l := range x {
		fixed := randomizer.Fixed(x[l])
		at, ok := known[l][fixed]
		if !ok {
			at = uint32(len(c.groups[l]))
			whole, up := randomizer.Rounding(fixed, c.m.k)
			known[l][fixed] = at
			c.groups[l] = append(c.groups[l], protocols.RoundingGroup{Whole: whole, Up: up})
		}
		member[l] = at
	}
	return member
}

// report draws the clients' messages about block b and adds them to a.
func (c *simulatedClients) report(src *randomizer.Source, a *aggregate, b int) {
	first, size := c.m.block(uint64(b))
	drawn := make([][]protocols.RoundingGroup, size)
	for i := range drawn {
		drawn[i] = slices.Clone(c.groups[first+uint64(i)])
	}
	for _, same := range c.equalClients {
		protocols.Spread(src, same.clients, size, func(clients, i uint64) {
			drawn[i][same.member[first+i]].Clients += clients
		})
	}
	for i, groups := range drawn {
		add := func(clients, level uint64) { a.add(first+uint64(i), clients, level) }
		for _, g := range groups {
			protocols.Spread(src, g.Answers(src, c.m.krr.Gamma, add), c.m.krr.K, add)
		}
	}
}

// attack implements [protocols.Capabilities.Attack]. With max, a client reports level k for a random coordinate of
// every block. Each such report moves the coordinate by s/(2(1-γ)) of the range, s being the block's size. With
// one-coordinate, it does so for the first coordinate of every block, so that all malicious clients move the same
// coordinates. With drop-noise, it reports one of its own coordinates per block, rounded.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	lanes := make(protocols.Messages, m.t)
	for b := range lanes {
		l, y := m.draw(src, b), m.k
		switch attack {
		case protocols.AttackMax:
		case protocols.AttackOneCoordinate:
			l, _ = m.block(uint64(b))
		case protocols.AttackDropNoise:
			y = src.Round(randomizer.Fixed(x[l]), m.k)
		default:
			return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
		}
		lanes[b] = m.message(l, y)
	}
	return lanes, nil
}
