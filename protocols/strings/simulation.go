package strings

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// attack implements [protocols.Capabilities.Attack]. With max or one-coordinate, a client sends its text's cell in the
// last check table, which moves that cell's estimate by T/(1−γ). With drop-noise, it sends the cell of its text in a
// random table without randomization.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	text, err := m.text(value)
	if err != nil {
		return nil, err
	}
	table := m.plan.tables() - 1
	switch attack {
	case protocols.AttackMax, protocols.AttackOneCoordinate:
	case protocols.AttackDropNoise:
		table = int(src.Below(uint64(m.plan.tables())))
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.message(m.plan.of(table, text)), nil
}

// fast implements [protocols.Capabilities.Fast]. It draws the table of each client, but encodes no message. It draws no
// dummies.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	cells, held := map[string]int{}, []uint64{}
	var texts [][]byte
	for _, value := range values {
		text, err := m.text(value)
		if err != nil {
			return nil, err
		}
		at, ok := cells[string(text)]
		if !ok {
			at = len(texts)
			cells[string(text)], texts, held = at, append(texts, text), append(held, 0)
		}
		held[at]++
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := m.newAggregate()
		for i, text := range texts {
			for range held[i] {
				a.counts[m.randomize(src, int(src.Below(uint64(m.plan.tables()))), text)]++
			}
		}
		return a, protocols.FixedCount(uint64(len(values)))
	}, nil
}
