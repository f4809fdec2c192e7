package verifier

import (
	"math"
	"math/bits"
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/protocols"
)

// spending adds up what epochs cost a client who reports in each of them. Those whose claim stands are composed
// exactly: they have one law, fixed before the first (docs/proofs/loss-laws.md, Theorem 3 (a)). What is left of
// over-exposed clients is added.
type spending struct {
	costs     *costs
	plain     uint64        // Epochs whose claim stands.
	others    compose.Spend // Of the rest.
	unbounded bool
}

// add takes note of an epoch.
func (s *spending) add(e *EpochReport) {
	switch {
	case e.Epsilon == nil:
		s.unbounded = true
	case e.OverExposed > 0:
		s.others = addSpends(s.others, compose.Spend{Epsilon: *e.Epsilon, Delta: e.Delta})
	default:
		s.plain++
	}
}

// addSpends adds two costs up.
func addSpends(a, b compose.Spend) compose.Spend {
	return compose.Spend{Epsilon: sumUp(a.Epsilon, b.Epsilon), Delta: sumUp(a.Delta, b.Delta)}
}

// sumUp is the sum of two numbers, or the next number above it where it is between two: never below it.
func sumUp(a, b float64) float64 {
	sum := a + b
	of := sum - a                // What of b is in the sum.
	if (a-(sum-of))+(b-of) > 0 { // The error of the addition, exactly ([Knuth, TAOCP 2, 4.2.2, Theorem B]).
		return math.Nextafter(sum, math.Inf(1))
	}
	return sum
}

// total returns what has been spent, a nil ε where nothing bounds it, of so many epochs whose claim stands.
func (s *spending) total(plain uint64) (eps *float64, delta float64, err error) {
	spent, err := s.costs.of(plain)
	if err != nil {
		return nil, 0, err
	}
	all := addSpends(spent, s.others)
	if s.unbounded {
		return nil, all.Delta, nil
	}
	return &all.Epsilon, all.Delta, nil
}

// boundSoFar bounds what has been spent so far. Of many epochs their number is rounded up by a sixteenth at most, so that
// the rows of a year take a second, and not ten.
func (s *spending) boundSoFar() (*float64, error) {
	unit := uint64(1) << max(0, bits.Len64(s.plain)-5)
	eps, _, err := s.total((s.plain + unit - 1) / unit * unit)
	return eps, err
}

// costs knows what some numbers of epochs cost together: a second's work for a year of them. The
// verifier's lock guards it.
type costs struct {
	subject
	law   func() (*compose.Law, error)
	known map[uint64]compose.Spend
}

func newCosts(of subject) *costs {
	law := sync.OnceValues(func() (*compose.Law, error) { return of.mechanism.Law() })
	return &costs{of, law, map[uint64]compose.Spend{}}
}

// of returns what a number of epochs cost together.
func (c *costs) of(epochs uint64) (compose.Spend, error) {
	known, ok := c.known[epochs]
	if ok || epochs == 0 {
		return known, nil
	}
	spent, err := protocols.Together(c.open.Task, c.law, epochs)
	if err == nil {
		c.known[epochs] = spent
	}
	return spent, err
}
