package vectorsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Attack is [protocols.Attacker]: max reports level k for t coordinates, each of which it moves by
// d/(2t(1-γ)) of the range; one-coordinate sends all t messages for the first one, which relays and
// verifier cannot tell from t clients; drop-noise reports t of the client's own coordinates, rounded.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, _ int, value []float64) ([][][]byte, error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	var lane [][]byte
	for _, l := range m.sample(src) {
		y := m.k
		switch attack {
		case protocols.AttackMax:
		case protocols.AttackOneCoordinate:
			l = 0
		case protocols.AttackDropNoise:
			y = src.Round(randomizer.Fixed(x[l]), m.k)
		default:
			return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
		}
		lane = append(lane, protocols.EncodeIndex(nil, l*m.krr.K+y, m.d*m.krr.K))
	}
	return [][][]byte{lane}, nil
}
