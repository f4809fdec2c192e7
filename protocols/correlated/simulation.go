package correlated

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Fast is [protocols.FastSimulator]: the noise of all clients is that of one whose atoms have as many times
// the weight, and of clients with equal values a binomial number are rounded up. It leaves out that noise is
// drawn again to fit the slots, an event whose probability over all clients is below δ/100.
func (m *Mechanism) Fast(values [][]float64) (func(*randomizer.Source) (protocols.Aggregate, uint64), error) {
	groups, err := m.group(values)
	if err != nil {
		return nil, err
	}
	noise, err := m.superposition(uint64(len(values)))
	if err != nil {
		return nil, err
	}
	return func(src *randomizer.Source) (protocols.Aggregate, uint64) {
		a, messages := m.Aggregate().(*aggregate), uint64(0)
		for at := range groups {
			for _, g := range groups[at] {
				up := src.Binomial(g.Clients, g.Up)
				a.sums[at] += int64(g.Clients*g.Whole + up)
				if messages += g.Clients; g.Whole == 0 && !m.needsZero() {
					messages -= g.Clients - up
				}
			}
		}
		src.Events(noise, func(i int, size uint64) {
			s := &m.sources[i]
			messages += size * uint64(s.Size)
			if s.Size == 1 { // the messages of others add up to 0
				a.sums[src.Below(m.dim)] += int64(size) * s.Messages[0]
			}
		})
		return a, messages
	}, nil
}

// group groups the clients of every coordinate by their values.
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

// Attack is [protocols.Attacker]. With max, every malicious client fills its B slots with messages Δ, of
// coordinates in turn; with one-coordinate, of the first. With drop-noise, it sends its rounded value
// without noise, which moves nothing on average and takes its share of the noise away.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, index int, value []float64) (protocols.Messages,
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
