package vectorsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize is [protocols.Mechanism.Randomize]. A message is the number l·K + y.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) ([][][]byte, error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	defer clear(x)
	lane := make([][]byte, 0, m.t)
	for _, l := range m.sample(src) {
		rounded := src.Round(randomizer.Fixed(x[l]), m.k)
		y := src.RandomizedResponse(rounded, m.krr.K, m.krr.Gamma)
		lane = append(lane, protocols.EncodeIndex(nil, l*m.krr.K+y, m.d*m.krr.K))
	}
	return [][][]byte{lane}, nil
}

// sample returns t of the d coordinates, every set being equally likely (Floyd's algorithm,
// Communications of the ACM 30(9), 1987). It consumes one [randomizer.Source.Below] per coordinate
// drawn.
func (m *Mechanism) sample(src *randomizer.Source) []uint64 {
	if m.t == 1 {
		return []uint64{src.Below(m.d)}
	}
	drawn, out := make([]bool, m.d), make([]uint64, 0, m.t)
	for j := m.d - m.t; j < m.d; j++ {
		l := src.Below(j + 1)
		if drawn[l] {
			l = j
		}
		drawn[l] = true
		out = append(out, l)
	}
	return out
}
