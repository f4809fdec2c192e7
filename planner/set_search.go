package planner

import (
	"math"
	"slices"
	"sync"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// step is the ratio of two neighbouring scales on the grid of [setSearch.run]. last is the most steps from scale 1.
const (
	step = 1.02
	last = 200
)

// scaleAt returns the scale n steps from 1.
func scaleAt(n int) float64 {
	scale := 1.0
	for range max(n, -n) {
		if n > 0 {
			scale *= step
		} else {
			scale /= step
		}
	}
	return scale
}

// setSearch searches for the largest scale with which the queries of a set keep their total. It remembers the tasks
// that it has calibrated, because it tries the same scales with several choices of tables.
type setSearch struct {
	Set
	mu     sync.Mutex
	drafts map[setDraft]Way
}

// setDraft identifies a task of a set: query, scale, and what a way chose.
type setDraft struct {
	query    int
	scale    float64
	protocol string
	noise    Noise
	padding  task.Padding
	gaussian bool
	param    uint64
}

// setWays is a choice of ways for all queries, calibrated for the largest scale that keeps the total.
type setWays struct {
	scale float64
	ways  []Way
}

// run returns the largest scale, to within half a per cent, with which the chosen ways keep the total. It also returns
// these ways, calibrated for that scale. It walks from the scale near in steps that double, up while the total is kept
// and down until it is, then bisects the last step.
func (s *setSearch) run(chosen []Way, near float64) (found setWays, err error) {
	want := "a larger total, or fewer queries or epochs"
	if slices.ContainsFunc(s.Goals, func(g Goal) bool { return g.LeastLocal > 0 }) {
		want += ", or 0 for local-epsilon"
	}
	none := invalid.Field("total-epsilon", format(s.Epsilon), want)
	most, over := -last-1, last+1 // Steps that keep the total, and steps that do not.
	from := int(math.Round(math.Log(near) / math.Log(step)))
	for n, walk := min(max(from, -last), last), 1; over-most > 1; {
		ways, kept, err := s.try(chosen, scaleAt(n))
		switch {
		case kept:
			most, found.ways = n, ways
		case err != nil && found.ways == nil && scaleAt(n) < .1:
			return setWays{}, err
		default:
			over = n
		}
		switch {
		case found.ways != nil && over <= last:
			n = (most + over) / 2
		case kept:
			n = min(n+walk, last)
		default:
			n = max(n-walk, -last)
		}
		walk *= 2
	}
	if found.ways == nil {
		return setWays{}, none
	}
	if found.scale = scaleAt(most); over > last {
		return found, nil // One query has nearly all of the total. [Set.goal] gives it no more than the total.
	}
	return s.between(chosen, found, scaleAt(over)), nil
}

// between searches between a scale that the ways keep and one that they do not.
func (s *setSearch) between(chosen []Way, found setWays, high float64) setWays {
	for high > found.scale*1.005 {
		middle := math.Sqrt(found.scale * high)
		if ways, kept, _ := s.try(chosen, middle); kept {
			found = setWays{middle, ways}
		} else {
			high = middle
		}
	}
	return found
}

// try calibrates the chosen ways for a scale. It reports whether they keep the total.
func (s *setSearch) try(chosen []Way, scale float64) (ways []Way, kept bool, err error) {
	ways = s.calibrated(chosen, scale)
	for _, w := range ways {
		if w.Why != nil {
			return nil, false, w.Why
		}
	}
	kept, err = s.keeps(ways)
	return ways, kept, err
}

// calibrated returns the chosen ways, calibrated for a scale.
func (s *setSearch) calibrated(chosen []Way, scale float64) []Way {
	ways := make([]Way, len(chosen))
	var wg sync.WaitGroup
	for i, c := range chosen {
		wg.Go(func() {
			tr := c.candidate
			key := setDraft{i, scale, c.Protocol, c.Noise, tr.padding, tr.gaussian, c.param}
			s.mu.Lock()
			w, ok := s.drafts[key]
			s.mu.Unlock()
			if !ok {
				tr.goal = s.goal(i, scale, c.Noise)
				w = tr.draft(c.param)
				s.mu.Lock()
				s.drafts[key] = w
				s.mu.Unlock()
			}
			ways[i] = w
		})
	}
	wg.Wait()
	return ways
}

// tables tries Gaussian tables for each query that has others: first for all of these queries, then for one query after
// the other. A choice is better if the errors of all queries are less in the geometric mean.
func (s *setSearch) tables(found setWays) setWays {
	if len(found.ways) == 1 { // Alone it takes the table with the least error.
		return found
	}
	all := slices.Clone(found.ways)
	for i := range all {
		all[i].candidate.gaussian = true
	}
	var others []int // Queries with tables that are not Gaussian.
	for i, w := range s.calibrated(all, found.scale) {
		if w.Why == nil && !equalTables(w.Task.Noise, found.ways[i].Task.Noise) {
			others = append(others, i)
		}
	}
	if len(others) == 0 {
		return found
	}
	try := func(change ...int) {
		ways := slices.Clone(found.ways)
		for _, i := range change {
			ways[i].candidate.gaussian = !ways[i].candidate.gaussian
		}
		if better, err := s.run(ways, found.scale); err == nil && worse(found.ways, better.ways) {
			found = better
		}
	}
	if try(others...); len(others) > 1 {
		for _, i := range others {
			try(i)
		}
	}
	return found
}

// equalTables reports whether two noises have the same tables.
func equalTables(a, b *task.Noise) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Tables, b.Tables, slices.Equal[[]uint64])
}
