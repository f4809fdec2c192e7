package correlated

import (
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. The noise of n clients is that of one client whose sources have n
// times the weight. Of clients with equal values, a binomial number round up. The messages of atoms add up to 0, so it
// draws only their number. It ignores that clients redraw noise that does not fit the slots: the probability that any
// client does is below δ/100.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := m.group(values)
	if err != nil {
		return nil, err
	}
	atoms := m.noises(uint64(len(values)))
	central := randomizer.NewRational(int64(len(values)), m.task.Batch.Min)
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a, messages := m.Aggregate().(*aggregate), uint64(0)
		for at := range groups {
			for _, g := range groups[at] {
				up := src.Binomial(g.Clients, g.Up)
				a.sums[at] += int64(g.Clients*g.Whole + up)
				if messages += g.Clients; g.Whole == 0 && !m.needsZero() {
					messages -= g.Clients - up
				}
			}
			up, down := src.Polya(central, m.central), src.Polya(central, m.central)
			a.sums[at] += int64(up) - int64(down)
			messages += up + down
		}
		return a, func() uint64 {
			for _, p := range atoms {
				messages += p.draw(src)
			}
			return messages
		}
	}, nil
}

// jointNoise is the noise of all clients from the atoms of one size and one distribution.
type jointNoise struct {
	size   uint64
	weight uint64 // Sum over atoms, clients and coordinates, in units of 1/rateUnit.
	s      randomizer.Rational
	jump   uint64
	min    uint64
}

// noises returns the noise of this many clients together.
func (m *Mechanism) noises(clients uint64) (out []jointNoise) {
	for _, s := range m.sources {
		p := jointNoise{size: uint64(s.Size), weight: s.weight * clients, s: s.s, jump: s.jump, min: m.task.Batch.Min}
		switch {
		case s.Messages == [3]int64{}: // the message 0, which has no coordinate
		case s.Size == 1:
			continue // central noise, which fast draws itself
		default:
			p.weight *= m.dim
		}
		alike := func(o jointNoise) bool { return o.size == p.size && o.s == p.s && o.jump == p.jump }
		if i := slices.IndexFunc(out, alike); i >= 0 {
			out[i].weight += p.weight
		} else {
			out = append(out, p)
		}
	}
	return out
}

// draw draws the number of messages of p.
func (p jointNoise) draw(src *randomizer.Source) (messages uint64) {
	if p.jump == 0 {
		return p.size * src.NegativeBinomial(randomizer.NewRational(int64(p.weight), rateUnit*p.min), p.s)
	}
	atom := randomizer.Atom{Weight: p.weight, Jumps: randomizer.NewJumps(p.s, p.jump)}
	src.Events(randomizer.NewSuperposition([]randomizer.Atom{atom}, rateUnit*p.min),
		func(_ int, size uint64) { messages += p.size * size })
	return messages
}

// group groups the clients of each coordinate by their values.
func (m *Mechanism) group(values [][]float64) ([][]protocols.RoundingGroup, error) {
	held := make([][][]float64, m.dim)
	for _, v := range values {
		at, x, err := m.input(v)
		if err != nil {
			return nil, err
		}
		held[at] = append(held[at], []float64{x})
	}
	groups := make([][]protocols.RoundingGroup, m.dim)
	for at := range held {
		var err error
		groups[at], err = protocols.RoundingGroups(held[at], m.top,
			func(v []float64) (float64, error) { return v[0], nil })
		if err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, every malicious client fills its B slots with messages
// Δ, for the coordinates in turn. With one-coordinate, all messages are for the first coordinate. With drop-noise, it
// sends its rounded value without noise. That moves nothing on average, but removes the client's part of the noise.
func (m *Mechanism) attack(src *randomizer.Source, attack string, index int, value []float64) (protocols.Messages,
	error) {
	at, x, err := m.input(value)
	if err != nil {
		return nil, err
	}
	messages := [][]byte{}
	switch attack {
	case protocols.AttackMax, protocols.AttackOneCoordinate:
		for k := range m.task.Slots.PerLane {
			to := uint64(0)
			if attack == protocols.AttackMax {
				to = (uint64(index) + k) % m.dim
			}
			messages = append(messages, m.encode(to, int64(m.top)))
		}
	case protocols.AttackDropNoise:
		messages = m.own(messages, at, int64(src.Round(randomizer.Fixed(x), m.top)))
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return protocols.Messages{messages}, nil
}
