package correlated

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

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
