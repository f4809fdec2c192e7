package rappor

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. For each level j, two binomial numbers of clients report j: holders of
// j whose bit is not flipped, and others whose bit is flipped. It ignores that clients redraw flips that do not fit the
// slots. The probability that any client does so is below δ/100.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := protocols.RoundingGroups(values, m.k,
		func(v []float64) (float64, error) { return protocols.Number(m.task, v) })
	if err != nil {
		return nil, err
	}
	n := uint64(len(values))
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		held := make([]uint64, m.k+2) // One entry more than levels: held[g.Whole+1] is 0 for a group at level k.
		for _, g := range groups {
			up := src.Binomial(g.Clients, g.Up)
			held[g.Whole] += g.Clients - up
			held[g.Whole+1] += up
		}
		a, messages := &aggregate{m: m}, uint64(0)
		for j := uint64(1); j <= m.k; j++ {
			count := held[j] - src.Binomial(held[j], m.f) + src.Binomial(n-held[j], m.f)
			a.sum += j * count
			messages += count
		}
		return a, protocols.FixedCount(messages)
	}, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, every slot holds level k; nobody can tell these messages
// from other clients' reports of level k. With drop-noise, the client sends only its own level.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	messages := [][]byte{}
	switch attack {
	case protocols.AttackMax:
		for range m.b {
			messages = append(messages, protocols.Indices(m.k).Encode(nil, m.k-1))
		}
	case protocols.AttackDropNoise:
		if level := src.Round(randomizer.Fixed(x), m.k); level > 0 {
			messages = append(messages, protocols.Indices(m.k).Encode(nil, level-1))
		}
	default:
		return nil, protocols.UnknownAttack(attack, "max or drop-noise")
	}
	return protocols.Messages{messages}, nil
}
