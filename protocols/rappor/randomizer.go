package rappor

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize].
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	bits := m.flips(src)
	if level := src.Round(randomizer.Fixed(x), m.k); level > 0 {
		bits[level-1] = !bits[level-1]
	}
	return m.encode(bits), nil
}

// flips draws which bits are flipped. If B < k, it redraws the number of flips until it is at most B-1. Their positions
// are drawn without replacement.
func (m *Mechanism) flips(src *randomizer.Source) []bool {
	count := src.Binomial(m.k, m.f)
	for m.b < m.k && count > m.b-1 {
		count = src.Binomial(m.k, m.f)
	}
	bits := make([]bool, m.k)
	for ; count > 0; count-- {
		i := src.Below(m.k)
		for bits[i] {
			i = src.Below(m.k)
		}
		bits[i] = true
	}
	return bits
}

// encode returns one message for every bit that is one: the bit's index, from 0.
func (m *Mechanism) encode(bits []bool) protocols.Messages {
	messages := [][]byte{}
	for i, one := range bits {
		if one {
			messages = append(messages, protocols.Indices(m.k).Encode(nil, uint64(i)))
		}
	}
	return protocols.Messages{messages}
}
