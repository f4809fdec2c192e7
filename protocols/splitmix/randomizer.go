package splitmix

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize]. It rounds the value, adds noise, and splits the sum into
// shares.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	y := m.residue(int64(src.Round(randomizer.Fixed(x), m.p)) + m.draw(src))
	return m.split(src, y), nil
}

// draw returns one client's noise, Pólya(1/n_min, α) - Pólya(1/n_min, α).
func (m *Mechanism) draw(src *randomizer.Source) (noise int64) {
	src.Events(m.noise, func(sign int, size uint64) {
		if sign == 0 {
			noise += int64(size)
		} else {
			noise -= int64(size)
		}
	})
	return noise
}

// residue returns v mod q in 0..q-1.
func (m *Mechanism) residue(v int64) uint64 {
	v %= int64(m.q)
	if v < 0 {
		v += int64(m.q)
	}
	return uint64(v)
}

// split returns m messages that are uniform among those that add up to y mod q: m-1 are uniform numbers below q, and
// the last one completes the sum.
func (m *Mechanism) split(src *randomizer.Source, y uint64) protocols.Messages {
	width := protocols.Indices(m.q).Bytes()
	buffer := make([]byte, 0, int(m.m)*width)
	shares := make([][]byte, m.m)
	for i := range shares {
		share := y
		if i < len(shares)-1 {
			share = src.Below(m.q)
			y = m.residue(int64(y) - int64(share))
		}
		buffer = protocols.Indices(m.q).Encode(buffer, share)
		shares[i] = buffer[i*width : (i+1)*width : (i+1)*width]
	}
	return protocols.Messages{shares}
}
