package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Draw returns an aggregate with the distribution that all messages of some clients give it, before AddUsers. The
// function messages draws the number of those messages; it can take longer than the aggregate.
type Draw func(src *randomizer.Source) (a Aggregate, messages func() uint64)

// FixedCount returns a fixed number of messages in the form of [Draw].
func FixedCount(n uint64) func() uint64 { return func() uint64 { return n } }

// The attacks of malicious clients in simulations.
const (
	AttackMax           = "max"            // The messages that move the answer most.
	AttackOneCoordinate = "one-coordinate" // All messages on one entry of the answer.
	AttackDropNoise     = "drop-noise"     // The client's value, and none of the protocol's noise.
)

// UnknownAttack returns the error for an attack that a protocol does not know; known lists those that it does.
func UnknownAttack(attack, known string) error {
	return invalid.Field("attack", strconv.Quote(attack), known+" for this protocol")
}

// RoundingGroup is a number of simulated clients whose values round alike: to Whole, or with probability Up to
// Whole+1.
type RoundingGroup struct {
	Clients, Whole uint64
	Up             randomizer.Rational
}

// RoundingGroups groups simulated clients by the values that unit maps them to, for stochastic rounding to 0..k.
func RoundingGroups(values [][]float64, k uint64, unit func([]float64) (float64, error)) ([]RoundingGroup, error) {
	at := map[uint64]int{}
	var groups []RoundingGroup
	for _, v := range values {
		x, err := unit(v)
		if err != nil {
			return nil, err
		}
		fixed := randomizer.Fixed(x)
		i, ok := at[fixed]
		if !ok {
			i = len(groups)
			at[fixed] = i
			whole, up := randomizer.Rounding(fixed, k)
			groups = append(groups, RoundingGroup{Whole: whole, Up: up})
		}
		groups[i].Clients++
	}
	return groups, nil
}

// Answers draws the randomized response of the clients' rounded values, with blanket probability gamma. It calls add
// with a level and the number of clients who report it as theirs. It returns the number of clients who report the
// blanket instead.
func (g RoundingGroup) Answers(src *randomizer.Source, gamma randomizer.Rational,
	add func(clients, level uint64)) (blanket uint64) {
	blanket = src.Binomial(g.Clients, gamma)
	up := src.Binomial(g.Clients-blanket, g.Up)
	add(g.Clients-blanket-up, g.Whole)
	add(up, g.Whole+1)
	return blanket
}

// Sum draws the sum of the clients' rounded values.
func (g RoundingGroup) Sum(src *randomizer.Source) uint64 {
	return g.Clients*g.Whole + src.Binomial(g.Clients, g.Up)
}

// Spread draws how n clients distribute over the given cells, each client in one cell, all equally likely. It calls
// add with a number of clients and a cell from 0, at most a few times for each cell. It takes n/64 draws for every
// halving of the cells, instead of one draw for each client. cells ≥ 1.
func Spread(src *randomizer.Source, n, cells uint64, add func(clients, cell uint64)) {
	width := uint64(1)
	for width < cells {
		width *= 2
	}
	for n >= cells { // Clients beyond the last cell are drawn again.
		n = halve(src, n, 0, width, cells, add)
	}
	for ; n > 0; n-- {
		add(1, src.Below(cells))
	}
}

// halve spreads n clients over width cells from first, width a power of two. It returns how many fall beyond the last
// cell.
func halve(src *randomizer.Source, n, first, width, cells uint64, add func(clients, cell uint64)) (beyond uint64) {
	switch {
	case n == 0:
		return 0
	case first >= cells:
		return n
	case width == 1:
		add(n, first)
		return 0
	}
	width /= 2
	left := src.Binomial(n, randomizer.NewRational(1, 2))
	return halve(src, left, first, width, cells, add) + halve(src, n-left, first+width, width, cells, add)
}
