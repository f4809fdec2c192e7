package vectorsum

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize]. A message is the number l·K + y, for coordinate l and symbol y.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	x, err := protocols.Vector(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	defer clear(x)
	lanes := make(protocols.Messages, m.t)
	for b := range lanes {
		l := m.draw(src, b)
		rounded := src.Round(randomizer.Fixed(x[l]), m.k)
		lanes[b] = m.message(l, src.RandomizedResponse(rounded, m.krr.K, m.krr.Gamma))
	}
	return lanes, nil
}

// draw returns a uniformly random coordinate of block b. It consumes one [randomizer.Source.Below].
func (m *Mechanism) draw(src *randomizer.Source, b int) uint64 {
	first, size := m.block(uint64(b))
	return first + src.Below(size)
}

// message returns the one message of a lane: level y for coordinate l.
func (m *Mechanism) message(l, y uint64) [][]byte {
	return [][]byte{protocols.Indices(m.d*m.krr.K).Encode(nil, l*m.krr.K+y)}
}
