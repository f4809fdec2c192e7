package vectormean

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. It computes the clients' representations once. It draws the noise of
// all clients on a counter as one binomial number.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	clients := make([][]part, len(values))
	for i, v := range values {
		parts, err := m.parts(v)
		if err != nil {
			return nil, err
		}
		clients[i] = parts
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := &aggregate{m: m, counts: make([]uint64, m.kinds())}
		x, f := make([]int64, m.size), make([]uint64, m.size) // scratch memory for one client at a time
		for _, parts := range clients {
			m.roundTo(x, f, src, parts)
			m.addUnits(a.counts, x)
		}
		messages := uint64(0)
		for kind := range a.counts {
			n := m.noiseOf(uint64(kind))
			a.counts[kind] += src.Binomial(uint64(len(values))*n.trials, n.chance)
			messages += a.counts[kind]
		}
		return a, protocols.FixedCount(messages)
	}, nil
}

// attack implements [protocols.Capabilities.Attack]. With one-coordinate or max, a client with one lane sends only
// messages (0, +), as many as it has slots. With a lane per coefficient it fills a lane or sends no unit in it, so that
// each coefficient moves the first entry of the answer up. The error has norm about √d + 2m·d/s with one lane, else
// κ(1+m/h). Under padding none it fills a lane with null messages instead of sending nothing. With drop-noise, a client
// sends only its own units.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	parts, err := m.parts(value)
	if err != nil {
		return nil, err
	}
	counts := make([]uint64, m.kinds())
	switch attack {
	case protocols.AttackDropNoise:
		m.addUnits(counts, m.round(src, parts))
	case protocols.AttackMax, protocols.AttackOneCoordinate:
		for lane, positive := range m.targets() {
			kind := uint64(lane) * m.perLane()
			if positive {
				counts[kind] = m.slots().PerLane
			} else if m.null.trials > 0 {
				counts[kind+1] = m.slots().PerLane
			}
		}
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.messages(counts), nil
}

// targets returns, for each lane, whether raising its first counter raises the first entry of the answer.
func (m *Mechanism) targets() []bool {
	if m.frame == nil {
		return []bool{true}
	}
	axis := make([]float64, len(m.frame.columns))
	axis[0] = 1
	out := make([]bool, m.size)
	for j, u := range m.frame.analyze(axis) {
		out[j] = u > 0
	}
	return out
}
