package vectormean

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Fast is [protocols.FastSimulator]: representations are computed once, and the noise of all clients
// on a counter is one binomial.
func (m *Mechanism) Fast(values [][]float64) (func(*randomizer.Source) (protocols.Aggregate, uint64), error) {
	fixed := make([][]uint64, len(values))
	for i, v := range values {
		unit, err := m.unit(v)
		if err != nil {
			return nil, err
		}
		fixed[i] = make([]uint64, len(unit))
		for j, u := range unit {
			fixed[i][j] = randomizer.Fixed(u)
		}
	}
	return func(src *randomizer.Source) (protocols.Aggregate, uint64) {
		a := &aggregate{m: m, counts: make([]uint64, m.kinds())}
		for _, client := range fixed {
			for j, u := range client {
				a.addValue(j, src.Round(u, m.levels))
			}
		}
		messages := uint64(0)
		for kind := range a.counts {
			n := m.noise[kind/int(m.sides)%len(m.noise)]
			a.counts[kind] += src.Binomial(uint64(len(values))*n.trials, n.chance)
			messages += a.counts[kind]
		}
		return a, messages
	}, nil
}

// addValue counts the messages for the value of coefficient j, without noise.
func (a *aggregate) addValue(j int, x uint64) {
	for i := range a.m.noise {
		first, bit := uint64(j*len(a.m.noise)+i)*a.m.sides, x>>i&1
		if a.m.sides == 2 {
			a.counts[first+bit]++
		} else {
			a.counts[first] += bit
		}
	}
}

// Attack is [protocols.Attacker]: one-coordinate and max put all slots on the highest bit of one
// coefficient, or, with a lane for each, of every coefficient that counts for the first entry of the
// answer with a positive sign: an error of norm about κ√N·(b+Σm) or ½κ·(b+Σm). drop-noise sends the
// client's bits alone.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	unit, err := m.unit(value)
	if err != nil {
		return nil, err
	}
	lanes := make(protocols.Messages, m.lanes)
	send := func(j int, kind uint64) {
		lane := &lanes[uint64(j)*m.lanes/uint64(m.frame.size)]
		*lane = append(*lane, protocols.EncodeIndex(nil, kind, m.kinds()))
	}
	switch attack {
	case protocols.AttackDropNoise:
		one := m.Aggregate().(*aggregate)
		for j, u := range unit {
			one.addValue(j, src.Round(randomizer.Fixed(u), m.levels))
		}
		perCoefficient := len(one.counts) / m.frame.size
		for kind, n := range one.counts {
			for range n {
				send(kind/perCoefficient, uint64(kind))
			}
		}
		return lanes, nil
	case protocols.AttackMax, protocols.AttackOneCoordinate:
		bits := len(m.noise)
		for _, j := range m.targets() {
			for range m.slots().PerLane {
				send(j, uint64(j*bits+bits-1)*m.sides+m.sides-1)
			}
		}
		return lanes, nil
	}
	return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
}

// targets returns the coefficients with a positive sign in the answer's first entry: one of them, or
// all where each has a lane.
func (m *Mechanism) targets() (out []int) {
	axis := make([]float64, len(m.frame.columns))
	axis[0] = 1
	for j, u := range m.frame.analyze(axis) {
		if u > 0 && (len(out) == 0 || m.lanes > 1) {
			out = append(out, j)
		}
	}
	return out
}
