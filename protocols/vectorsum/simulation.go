package vectorsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

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
