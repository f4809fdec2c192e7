package strings

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// Count is how many clients have a text, and the interval that holds their number.
type Count struct {
	Text    string
	Clients float64
	Lo, Hi  float64
}

// Ask counts given texts, cut as clients' texts are, in the tables that hash a text as a whole. All intervals hold
// together with the given confidence, in (0, 1): each by itself has that of Bonferroni. A text that is none is an
// error about "value". So that frequent texts do not count for others, a cell that a more frequent one of the list has
// is left out; a text without other cells keeps them.
func (a *Aggregate) Ask(texts []string, confidence float64) ([]Count, error) {
	out, padded := make([]Count, len(texts)), make([][]byte, len(texts))
	s := newScene(a)
	order := make([]int, len(texts))
	for i, text := range texts {
		var err error
		if padded[i], err = a.m.plan.pad([]byte(text)); err != nil {
			return nil, err
		}
		order[i] = i
		out[i].Clients = s.count(s.whole(padded[i], false))
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch x, y := out[i].Clients, out[j].Clients; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	each := 1 - (1-confidence)/float64(max(1, len(texts)))
	done := map[string]Count{}
	for _, i := range order {
		c, ok := done[string(padded[i])]
		if !ok {
			cells := s.whole(padded[i], true)
			if len(cells) == 0 {
				cells = s.whole(padded[i], false)
			}
			c.Clients = s.count(cells)
			c.Lo, c.Hi = s.interval(cells, protocols.Quantile(each))
			s.claim(padded[i])
			done[string(padded[i])] = c
		}
		out[i] = Count{texts[i], c.Clients, c.Lo, c.Hi}
	}
	return out, nil
}

// scene is what the cells of an aggregate hold beside frequent texts, and whose cells are known.
type scene struct {
	*Aggregate
	mean, variance []float64 // Of the messages of a cell, by table, without those of frequent texts.
	claimed        map[uint64]bool
}

func newScene(a *Aggregate) *scene {
	s := &scene{Aggregate: a, claimed: map[uint64]bool{}}
	b := a.m.plan.b
	for table := range a.m.plan.tables() {
		first := uint64(table) * b
		mean, variance := background(a.counts[first : first+b])
		s.mean, s.variance = append(s.mean, mean), append(s.variance, variance)
	}
	return s
}

// trim is how many standard deviations, of a Poisson law, above the mean a cell's messages may be to count as
// background.
const trim = 3.5

// background returns the mean and the variance of cells that no frequent text is in: what is beyond trim standard
// deviations is left out, until nothing more is. Of a Poisson law that is one in some thousand. The variance is at
// least the mean, that of a Poisson law, and is more where texts of a few clients are many.
func background(counts []uint64) (mean, variance float64) {
	limit := math.Inf(1)
	for range 50 {
		n, sum, squares := 0.0, 0.0, 0.0
		for _, count := range counts {
			if x := float64(count); x <= limit {
				n, sum, squares = n+1, sum+x, squares+x*x
			}
		}
		mean = sum / n
		variance = max(mean, squares/n-mean*mean)
		next := mean + trim*math.Sqrt(mean) + 1
		if next >= limit {
			break
		}
		limit = next
	}
	return mean, variance
}

// whole returns the cells of a padded text in the tables that hash all of it; free leaves out those that are claimed.
func (s *scene) whole(text []byte, free bool) (cells []uint64) {
	for table := s.m.plan.levels - 1; table < s.m.plan.tables(); table++ {
		if y := s.m.plan.of(table, text); !free || !s.claimed[y] {
			cells = append(cells, y)
		}
	}
	return cells
}

// claim marks all cells of a text.
func (s *scene) claim(text []byte) {
	for table := range s.m.plan.tables() {
		s.claimed[s.m.plan.of(table, text)] = true
	}
}

// excess returns by how much the messages of cells are more than the background, and the variance of that.
func (s *scene) excess(cells []uint64) (more, variance float64) {
	for _, y := range cells {
		table := y / s.m.plan.b
		more += float64(s.counts[y]) - s.mean[table]
		variance += s.variance[table]
	}
	return more, variance
}

// share returns the probability that a client's message is in so many of its text's cells, and not by chance.
func (s *scene) share(cells int) float64 { return float64(cells) / s.m.unit() }

// count returns the estimate of the clients that have a text, from some of its cells.
func (s *scene) count(cells []uint64) float64 {
	more, _ := s.excess(cells)
	return more / s.share(len(cells))
}

// interval returns the numbers c of clients that the messages in some cells do not contradict: with w the share of
// messages there and v the background's variance,
//
//	|more − c·w| ≤ z·√(c·w(1−w) + v) + ½,   c·w = max(0, c)·w under the root
func (s *scene) interval(cells []uint64, z float64) (lo, hi float64) {
	more, v := s.excess(cells)
	w := s.share(len(cells))
	return wilson(more-.5, v, w, -z), wilson(more+.5, v, w, z)
}

// wilson solves more − c·w = −z·√(max(0, c)·w(1−w) + v) for c.
func wilson(more, v, w, z float64) float64 {
	if end := more + z*math.Sqrt(v); end <= 0 {
		return end / w
	}
	half := z * z * (1 - w) / 2 // (x − more)² = z²·(x(1−w) + v), x = c·w
	root := math.Sqrt(half*half + 2*half*more + z*z*v)
	if z < 0 {
		root = -root
	}
	return (more + half + root) / w
}
