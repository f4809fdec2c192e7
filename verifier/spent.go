package verifier

import (
	"math"
	"math/bits"
	"sync"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/protocols"
)

// spending sums the costs of epochs for a client who reports in each of them, as far as the task's cap allows. Epochs
// whose claim holds have the same privacy-loss law, fixed before the first, so their costs compose exactly
// (docs/proofs/loss-laws.md, Theorem 3 (a)). For epochs with over-exposed clients, ε and δ are added up.
type spending struct {
	costs     *costs
	plain     []uint64      // Starts of the epochs for which the claim holds, ascending.
	others    compose.Spend // Sum of the other epochs.
	unbounded bool
}

func (s *spending) add(e *EpochReport) {
	switch {
	case e.Epsilon == nil:
		s.unbounded = true
	case e.OverExposed > 0:
		s.others = addSpends(s.others, compose.Spend{Epsilon: *e.Epsilon, Delta: e.Delta})
	default:
		s.plain = append(s.plain, uint64(e.Start.Unix()))
	}
}

func addSpends(a, b compose.Spend) compose.Spend {
	return compose.Spend{Epsilon: sumUp(a.Epsilon, b.Epsilon), Delta: sumUp(a.Delta, b.Delta)}
}

// sumUp returns a + b, rounded up to the next float64 if the sum is not exact.
func sumUp(a, b float64) float64 {
	sum := a + b
	of := sum - a                // the part of b that is in the sum
	if (a-(sum-of))+(b-of) > 0 { // the exact error of the addition ([Knuth, TAOCP 2, 4.2.2, Theorem B])
		return math.Nextafter(sum, math.Inf(1))
	}
	return sum
}

// copies returns how many copies of the law of one epoch cover one client's reports in epochs whose claim holds.
func (s *spending) copies() uint64 { return s.costs.open.MostCopiesAt(s.plain) }

// total returns the cost of a number of reports in epochs whose claim holds, plus the cost of all other epochs. eps is
// nil if it has no bound.
func (s *spending) total(reports uint64) (eps *float64, delta float64, err error) {
	spent, err := s.costs.of(reports)
	if err != nil {
		return nil, 0, err
	}
	all := addSpends(spent, s.others)
	if s.unbounded {
		return nil, all.Delta, nil
	}
	return &all.Epsilon, all.Delta, nil
}

// boundSoFar returns an upper bound on the ε spent so far. It rounds a large number of reports up by at most a
// sixteenth. So the rows of a year take 1 s instead of 10 s.
func (s *spending) boundSoFar() (*float64, error) {
	reports := s.copies()
	unit := uint64(1) << max(0, bits.Len64(reports)-5)
	eps, _, err := s.total((reports + unit - 1) / unit * unit)
	return eps, err
}

// costs caches the composed cost of numbers of reports. Computing it takes 1 s for a year of daily reports. The
// verifier's lock guards it.
type costs struct {
	subject
	law   func() (*compose.Law, error)
	known map[uint64]compose.Spend

	persons map[personsKey]*ledger.PersonCosts
}

func newCosts(of subject) *costs {
	law := sync.OnceValues(func() (*compose.Law, error) { return of.mechanism.Law() })
	return &costs{of, law, map[uint64]compose.Spend{}, map[personsKey]*ledger.PersonCosts{}}
}

// of returns the composed cost of a number of reports in epochs whose claim holds.
func (c *costs) of(reports uint64) (compose.Spend, error) {
	known, ok := c.known[reports]
	if ok || reports == 0 {
		return known, nil
	}
	spent, err := protocols.EpochsSpend(c.open.Task, c.law, reports)
	if err == nil {
		c.known[reports] = spent
	}
	return spent, err
}
