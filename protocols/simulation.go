package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Draw returns an aggregate with the distribution that all messages of some clients give it, before AddUsers,
// and draws the number of those where it is called, which can take longer.
type Draw func(src *randomizer.Source) (a Aggregate, messages func() uint64)

// Sent returns a known number of messages in the form of [Draw].
func Sent(n uint64) func() uint64 { return func() uint64 { return n } }

// The attacks of malicious clients in simulations.
const (
	AttackMax           = "max"            // The messages that move the answer most.
	AttackOneCoordinate = "one-coordinate" // All messages on one entry of the answer.
	AttackDropNoise     = "drop-noise"     // The client's value, and none of the protocol's noise.
)

// UnknownAttack is the error for an attack that a protocol does not know, known being those it does.
func UnknownAttack(attack, known string) error {
	return invalid.Field("attack", strconv.Quote(attack), known+" for this protocol")
}

// RoundingGroup is a number of clients in a simulation whose values round alike: to Whole, or with
// probability Up to Whole+1.
type RoundingGroup struct {
	Clients, Whole uint64
	Up             randomizer.Rational
}

// RoundingGroups groups clients by what unit maps their values to, for stochastic rounding to 0..k.
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

// Answers draws what the clients' rounded values become by randomized response with blanket probability
// gamma: it calls add with a level and the number of clients who report it as theirs, and returns the number
// of those who report the blanket instead.
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

// Spread draws where n clients fall who each take one of the given cells, all equally likely: it calls add with a
// number of clients and a cell from 0, at most a few times for each. It takes as long as n/64 draws for every halving
// of the cells, rather than one draw for each client. cells ≥ 1.
func Spread(src *randomizer.Source, n, cells uint64, add func(clients, cell uint64)) {
	width := uint64(1)
	for width < cells {
		width *= 2
	}
	for n >= cells { // Those who fall beyond the cells are drawn again.
		n = halve(src, n, 0, width, cells, add)
	}
	for ; n > 0; n-- {
		add(1, src.Below(cells))
	}
}

// halve spreads n clients over width cells from the first, width being a power of two, and returns how many fall
// beyond those that there are.
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
