package vectorgrid

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Randomize implements [protocols.Mechanism.Randomize]. It encodes a grid point w as the number Σ w_j·(r+1)^j.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	u, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	defer clear(u)
	return m.krr.Report(src, m.point(src, u)), nil
}

// point rounds u stochastically to a grid point and returns the point's number.
func (m *Mechanism) point(src *randomizer.Source, u []float64) (point uint64) {
	place := uint64(1)
	for _, x := range u {
		point += place * src.Round(randomizer.Fixed(x), m.r)
		place *= m.r + 1
	}
	return point
}

// unit maps a client's vector into [0, 1]^d; for vectormean, from [-1, 1]^d.
func (m *Mechanism) unit(value []float64) ([]float64, error) {
	if m.task.Query == task.Vector {
		return protocols.Vector(m.task.Input, value)
	}
	v, err := protocols.Ball(m.task.Input, value)
	for j := range v {
		v[j] = min(max((v[j]+1)/2, 0), 1)
	}
	return v, err
}
