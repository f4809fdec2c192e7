package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Draw draws the aggregate of a fixed set of simulated clients, before AddUsers, directly from its distribution. The
// returned function draws the number of messages they sent. It is separate because it can take longer than the
// aggregate.
type Draw func(src *randomizer.Source) (a Aggregate, messages func() uint64)

// FixedCount returns a function for [Draw] that always returns n.
func FixedCount(n uint64) func() uint64 { return func() uint64 { return n } }

// The attacks of malicious clients in simulations.
const (
	AttackMax           = "max"            // Send the messages that move the answer most.
	AttackOneCoordinate = "one-coordinate" // Aim all messages at one entry of the answer.
	AttackDropNoise     = "drop-noise"     // Send the client's true value without the protocol's noise.
)

// UnknownAttack returns the error for an attack that a protocol does not support. known lists the supported attacks.
func UnknownAttack(attack, known string) error {
	return invalid.Field("attack", strconv.Quote(attack), known+" for this protocol")
}

// RoundingGroup stands for clients with equal values. Each value rounds to Whole+1 with probability Up, else to Whole.
type RoundingGroup struct {
	Clients, Whole uint64
	Up             randomizer.Rational
}

// RoundingGroups groups simulated clients with equal values, for stochastic rounding to 0..k. The function unit maps a
// client's value into [0, 1].
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

// Answers draws the randomized response of the group's clients, with blanket probability gamma. It calls add with a
// level and the number of clients who report it as their value. It returns how many clients report the blanket instead,
// which the caller draws.
func (g RoundingGroup) Answers(src *randomizer.Source, gamma randomizer.Rational,
	add func(clients, level uint64)) (blanket uint64) {
	blanket = src.Binomial(g.Clients, gamma)
	up := src.Binomial(g.Clients-blanket, g.Up)
	add(g.Clients-blanket-up, g.Whole)
	add(up, g.Whole+1)
	return blanket
}

// Sum draws the sum of the group's rounded values.
func (g RoundingGroup) Sum(src *randomizer.Source) uint64 {
	return g.Clients*g.Whole + src.Binomial(g.Clients, g.Up)
}

// Spread assigns each of n clients to a uniformly random cell from 0 to cells-1. It calls add with a cell and a number
// of clients, at most a few times per cell. It repeatedly halves the cells and takes n/64 random draws per halving,
// instead of one draw per client. cells ≥ 1.
func Spread(src *randomizer.Source, n, cells uint64, add func(clients, cell uint64)) {
	width := uint64(1)
	for width < cells {
		width *= 2
	}
	for n >= cells { // halve covers a power of two: assign the clients beyond the last cell again.
		n = halve(src, n, 0, width, cells, add)
	}
	for ; n > 0; n-- {
		add(1, src.Below(cells))
	}
}

// halve spreads n clients over the width cells from first on; width is a power of two. It returns the number of clients
// in cells that do not exist, because they lie at cells or beyond.
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
