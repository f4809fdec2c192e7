package splitmix

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// fast implements [protocols.Capabilities.Fast]. It draws only the residue of a batch, because the shares of a client
// add up to the client's number. The residue comes from the rounded values and the noise of all clients, NB(n/n_min, α)
// - NB(n/n_min, α).
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	groups, err := protocols.RoundingGroups(values, m.p,
		func(v []float64) (float64, error) { return protocols.Number(m.task, v) })
	if err != nil {
		return nil, err
	}
	r := randomizer.NewRational(int64(len(values)), m.task.Batch.Min)
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		up, down := src.Polya(r, m.s), src.Polya(r, m.s)
		sum := int64(up) - int64(down)
		for _, g := range groups {
			sum += int64(g.Sum(src))
		}
		messages := uint64(len(values)) * m.m
		return &aggregate{m: m, residue: m.residue(sum), messages: messages}, protocols.FixedCount(messages)
	}, nil
}

// attack implements [protocols.Capabilities.Attack]. With max, the first malicious client adds ⌊q/2⌋ to the sum. This
// moves the estimate of a batch, whatever it was, by at least ⌊q/2⌋/p, half of the decodable range. The other malicious
// clients report honestly, because a second shift would undo the first. With drop-noise, every malicious client shares
// its rounded value without noise.
func (m *Mechanism) attack(src *randomizer.Source, attack string, index int, value []float64) (protocols.Messages,
	error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	y := int64(src.Round(randomizer.Fixed(x), m.p))
	switch attack {
	case protocols.AttackMax:
		y += m.draw(src)
		if index == 0 {
			y += int64(m.q / 2)
		}
	case protocols.AttackDropNoise:
	default:
		return nil, protocols.UnknownAttack(attack, "max or drop-noise")
	}
	return m.split(src, m.residue(y)), nil
}

// reach returns the most that one malicious client can move the estimated total of a batch: q−1 steps, from one end of
// the decodable range to the other.
func (m *Mechanism) reach() float64 {
	lo, hi := m.task.Input.Lo.Float64(), m.task.Input.Hi.Float64()
	return float64(m.q-1) / float64(m.p) * (hi - lo)
}
