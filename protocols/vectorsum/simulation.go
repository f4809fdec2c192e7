package vectorsum

import (
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Fast is [protocols.FastSimulator]: every client draws its coordinates, and of those who report the same
// value of the same coordinate a binomial number report the blanket, and of the others a binomial number are
// rounded up.
func (m *Mechanism) Fast(values [][]float64) (protocols.Draw, error) {
	c, err := m.newCrowd(values)
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := m.Aggregate().(*aggregate)
		for b := range a.messages {
			c.report(src, a, b)
		}
		return a, protocols.Sent(m.t * uint64(len(values)))
	}, nil
}

// crowd is the clients of a simulation: for every coordinate the groups of equal values, and for every
// client and coordinate the number of its group.
type crowd struct {
	m       *Mechanism
	groups  [][]protocols.RoundingGroup
	members [][]uint32
}

func (m *Mechanism) newCrowd(values [][]float64) (*crowd, error) {
	c := &crowd{m: m, groups: make([][]protocols.RoundingGroup, m.d), members: make([][]uint32, len(values))}
	known := make([]map[uint64]uint32, m.d)
	for l := range known {
		known[l] = map[uint64]uint32{}
	}
	for i, v := range values {
		x, err := protocols.Vector(m.task.Input, v)
		if err != nil {
			return nil, err
		}
		c.members[i] = make([]uint32, m.d)
		for l := range x {
			fixed := randomizer.Fixed(x[l])
			at, ok := known[l][fixed]
			if !ok {
				at = uint32(len(c.groups[l]))
				whole, up := randomizer.Rounding(fixed, m.k)
				known[l][fixed] = at
				c.groups[l] = append(c.groups[l], protocols.RoundingGroup{Whole: whole, Up: up})
			}
			c.members[i][l] = at
		}
	}
	return c, nil
}

// report adds the messages of block b.
func (c *crowd) report(src *randomizer.Source, a *aggregate, b int) {
	first, size := c.m.block(uint64(b))
	drawn := make([][]protocols.RoundingGroup, size)
	for l := range drawn {
		drawn[l] = slices.Clone(c.groups[first+uint64(l)])
	}
	for _, groups := range c.members {
		l := c.m.draw(src, b)
		drawn[l-first][groups[l]].Clients++
	}
	for i, groups := range drawn {
		l := first + uint64(i)
		add := func(clients, level uint64) { a.add(l, clients, level) }
		for _, g := range groups {
			for blanket := g.Answers(src, c.m.krr.Gamma, add); blanket > 0; blanket-- {
				add(1, src.Below(c.m.krr.K))
			}
		}
	}
}

// Attack is [protocols.Attacker]: max reports level k for one coordinate of every block, each of which
// it moves by s/(2(1-γ)) of the range, s being the block's size; one-coordinate does so for the first
// of every block, so that all malicious clients move the same ones; drop-noise reports one of the
// client's own coordinates per block, rounded.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
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
