package vectormean

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize is [protocols.Mechanism.Randomize]. Message (j, i, s) is the number (j·b+i)·sides + s; with
// one side s is 0 and a bit that is 0 sends none.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	unit, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	defer clear(unit)
	lanes := make(protocols.Messages, m.lanes)
	kinds, bits := m.kinds(), uint64(len(m.noise))
	width := protocols.IndexBytes(kinds)
	buffer := make([]byte, 0, 4096) // of all messages: a slice of their own each would keep the collector busy
	for j, u := range unit {
		lane := &lanes[uint64(j)*m.lanes/uint64(len(unit))]
		send := func(kind uint64) {
			buffer = protocols.EncodeIndex(buffer, kind, kinds)
			*lane = append(*lane, buffer[len(buffer)-width:len(buffer):len(buffer)])
		}
		x := src.Round(randomizer.Fixed(u), m.levels)
		for i, n := range m.noise {
			first := (uint64(j)*bits + uint64(i)) * m.sides
			bit := x >> i & 1
			if m.sides == 2 {
				send(first + bit)
			} else if bit == 1 {
				send(first)
			}
			for kind := first; kind < first+m.sides; kind++ {
				for range src.Binomial(n.trials, n.chance) {
					send(kind)
				}
			}
		}
	}
	return lanes, nil
}

// unit returns (a_j/c+1)/2 of a client's vector, in [0, 1].
func (m *Mechanism) unit(value []float64) ([]float64, error) {
	v, err := protocols.Ball(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	defer clear(v)
	return m.spread(v), nil
}

// spread returns (a_j/c+1)/2. A coefficient beyond c is clipped: what follows must never see one,
// whatever the search for a representation did.
func (m *Mechanism) spread(v []float64) []float64 {
	a, _ := m.frame.represent(v, m.bound)
	for j := range a {
		a[j] = min(max((a[j]/m.bound+1)/2, 0), 1)
	}
	return a
}
