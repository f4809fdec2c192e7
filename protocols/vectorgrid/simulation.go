package vectorgrid

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Attack is [protocols.Attacker]: max reports the corner of the grid where every coordinate is
// largest, which for vectormean lies √d times as far out as any vector may; one-coordinate reports
// the client's own vector but for the first coordinate, which is largest; drop-noise reports its own
// vector, rounded.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	u, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	switch attack {
	case protocols.AttackMax:
		for j := range u {
			u[j] = 1
		}
	case protocols.AttackOneCoordinate:
		u[0] = 1
	case protocols.AttackDropNoise:
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.krr.Certain(m.point(src, u)), nil
}
