package planner

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
)

// Set is several queries that the same visitors answer in each of several epochs, under one total for all. Each goal
// has its own limits of cost. A goal must not set a claim, a total, a number of users or of epochs, because the set has
// them.
type Set struct {
	Goals   []Goal
	Weights []float64 // Per goal: its ε relative to the ε of a goal of weight 1, in (0, 1000].
	Users   uint64    // Reports in a batch of each query.
	Epochs  uint64    // Number of epochs, 1 to 65536.
	Epsilon float64   // Total over all queries and epochs, in (0, 100].
	Delta   float64   // Total over all queries and epochs, in (0, 1).
}

// SetPlan is a plan for all queries of a set.
type SetPlan struct {
	Ways    []Way   // For each goal, the best way with its part of the total.
	Epsilon float64 // ε of all queries and epochs composed, at the set's δ; at most the set's ε.
	Added   float64 // For comparison: ε if each query is composed by itself and the results are added.
}

const mostQueries = 64

// PlanSet splits a total of ε and δ among queries and epochs. The owner fixes all tasks before the first report, so the
// privacy-loss laws of all queries and epochs compose as one product ([compose.Delta]; docs/proofs/loss-laws.md,
// Theorem 3). PlanSet searches the largest ε per epoch, in the ratio of the weights, for which this product keeps the
// total. Each query and epoch gets an equal part of one half of δ; the other half is for composition.
// The error of a query is roughly proportional to 1/ε. So a query of twice the weight has an interval of half the
// width.
func PlanSet(s Set, done func(of int)) (*SetPlan, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	// Choose the protocols at roughly the ε that each query would get if all were Gaussian mechanisms.
	squares := 0.0
	for _, w := range s.Weights {
		squares += w * w
	}
	unit := s.Epsilon / math.Sqrt(2*float64(s.Epochs)*squares*math.Log(1/s.Delta))
	unit = max(unit, s.Epsilon/float64(s.Epochs)/s.heaviest()/float64(len(s.Goals)))
	ways, err := s.best(unit, done)
	if err != nil {
		return nil, err
	}
	unit, ways, err = s.search(ways, unit)
	if err != nil {
		return nil, err
	}
	// At the ε found, another protocol may be best.
	if again, err := s.best(unit, done); err == nil {
		if _, better, err := s.search(again, unit); err == nil && worse(ways, better) {
			ways = better
		}
	}
	out := &SetPlan{Ways: ways}
	return out, out.compose(s)
}

// worse reports whether the errors of ways exceed those of others, in the geometric mean.
func worse(ways, others []Way) bool {
	sum := 0.0
	for i := range ways {
		sum += math.Log(ways[i].RMSE / others[i].RMSE)
	}
	return sum > 0
}

func (s Set) heaviest() (most float64) {
	for _, w := range s.Weights {
		most = max(most, w)
	}
	return most
}

func (s Set) check() error {
	switch {
	case len(s.Goals) < 1 || len(s.Goals) > mostQueries:
		return invalid.Field("queries", strconv.Itoa(len(s.Goals)), "1 to "+strconv.Itoa(mostQueries))
	case len(s.Weights) != len(s.Goals):
		return invalid.Field("weights", strconv.Itoa(len(s.Weights)), "one for each query")
	case s.Epochs < 1 || s.Epochs > 65536:
		return invalid.Field("epochs", strconv.FormatUint(s.Epochs, 10), "1 to 65536")
	}
	for i, g := range s.Goals {
		if w := s.Weights[i]; !(w > 0 && w <= 1000) {
			return invalid.Field("weight", format(w), "a number in (0, 1000]")
		}
		if g.Epsilon != 0 || g.Delta != 0 || g.TotalEpsilon != 0 || g.TotalDelta != 0 || g.Batch != 0 {
			return invalid.Field("queries", g.Name, "queries without users, epsilon and delta of their own")
		}
	}
	return checkClaim("total-", s.Epsilon, s.Delta)
}

// goal returns goal i with its part of the total. unit is ε of one epoch for weight 1.
func (s Set) goal(i int, unit float64) Goal {
	g := s.Goals[i]
	g.Batch = s.Users
	g.Epsilon = down(unit * s.Weights[i])
	g.Delta = down(s.Delta / float64(s.Epochs) / float64(len(s.Goals)) / 2)
	return g
}

// best returns the best way for each query. unit is ε of one epoch for weight 1.
func (s Set) best(unit float64, done func(of int)) (ways []Way, err error) {
	for i := range s.Goals {
		of, err := Plan(s.goal(i, unit), nil)
		if err != nil {
			return nil, err
		}
		if of[0].Why != nil {
			return nil, invalid.Field("query "+s.Goals[i].Name, "at ε "+format(down(unit*s.Weights[i])),
				"a larger total, fewer epochs, or more users: "+of[0].Why.Error())
		}
		ways = append(ways, of[0])
		if done != nil {
			done(len(s.Goals))
		}
	}
	return ways, nil
}

// search returns the largest ε of one epoch for weight 1, to within a thousandth, with which the chosen ways keep the
// total. It also returns these ways, calibrated for that ε, with the same protocols and paddings. unit is the ε at
// which they were chosen.
func (s Set) search(chosen []Way, unit float64) (low float64, ways []Way, err error) {
	const step = 1.2
	high := math.Inf(1)
	for low = unit; ; {
		tried, kept, err := s.try(chosen, low)
		if kept {
			ways = tried
		} else if high = min(high, low); ways == nil && err != nil && low < unit {
			return 0, nil, err
		}
		if ways != nil && !math.IsInf(high, 1) {
			break
		}
		if kept {
			low *= step
		} else if low /= step; low < unit/1e3 {
			return 0, nil, invalid.Field("total-epsilon", format(s.Epsilon),
				"a larger total, or fewer queries or epochs")
		}
	}
	for low = high / step; high > low*(1+splitTolerance); {
		middle := math.Sqrt(low * high)
		if tried, kept, _ := s.try(chosen, middle); kept {
			low, ways = middle, tried
		} else {
			high = middle
		}
	}
	return low, ways, nil
}

// try calibrates the chosen ways at an ε of one epoch for weight 1. It reports whether they keep the total.
func (s Set) try(chosen []Way, unit float64) (ways []Way, kept bool, err error) {
	if unit*s.heaviest() > s.Epsilon {
		return nil, false, nil
	}
	if ways, err = s.at(chosen, unit); err == nil {
		kept, err = s.keeps(ways)
	}
	return ways, kept, err
}

// at calibrates the chosen ways at an ε of one epoch for weight 1.
func (s Set) at(chosen []Way, unit float64) (ways []Way, err error) {
	for i, c := range chosen {
		tr := c.candidate
		tr.goal = s.goal(i, unit)
		w := tr.draft(c.param)
		if w.Why != nil {
			return nil, w.Why
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// keeps reports whether all epochs of all ways together keep the total.
func (s Set) keeps(ways []Way) (bool, error) {
	seen, err := s.observations(ways)
	if err != nil {
		return false, err
	}
	return compose.Delta(seen, s.Epsilon, s.Delta) <= s.Delta, nil
}

// observations returns the privacy-loss observations of all epochs of all ways.
func (s Set) observations(ways []Way) (seen []compose.Observation, err error) {
	for _, w := range ways {
		law, err := w.Mechanism.Law()
		if err != nil {
			return nil, err
		}
		seen = append(seen, law.Observation(s.Epochs))
	}
	return seen, nil
}

func (p *SetPlan) compose(s Set) error {
	seen, err := s.observations(p.Ways)
	if err != nil {
		return err
	}
	if p.Epsilon, err = compose.Epsilon(seen, s.Delta); err != nil {
		return err
	}
	p.Epsilon = min(p.Epsilon, s.Epsilon) // Epsilon may be 10⁻⁵ above the least; keeps has checked this bound.
	for i := range seen {
		one, err := compose.Epsilon(seen[i:i+1], s.Delta/float64(len(seen)))
		if err != nil {
			return err
		}
		p.Added += one
	}
	return nil
}
