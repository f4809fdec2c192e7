package strings

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// Ask counts given texts in the tables that hash a whole text. It cuts each text as clients do. With the given
// confidence, in (0, 1), all intervals hold together, by Bonferroni's correction. A string that is not a valid text is
// an error about "value". A frequent text's messages must not count for other texts. So a text does not use a cell that
// a more frequent text of the list has, unless it has no other cells.
func (a *aggregate) Ask(texts []string, confidence float64) ([]protocols.TextCount, error) {
	out, padded := make([]protocols.TextCount, len(texts)), make([][]byte, len(texts))
	s := newCellStats(a)
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
	done := map[string]protocols.TextCount{}
	for _, i := range order {
		c, ok := done[string(padded[i])]
		if !ok {
			cells := s.whole(padded[i], true)
			if len(cells) == 0 {
				cells = s.whole(padded[i], false)
			}
			c.Clients = s.count(cells)
			c.Lo, c.Hi = s.interval(cells, protocols.Quantile(each))
			s.claim(padded[i], 1)
			done[string(padded[i])] = c
		}
		out[i] = protocols.TextCount{Text: texts[i], Clients: c.Clients, Lo: c.Lo, Hi: c.Hi}
	}
	return out, nil
}

// cellStats describes the cells of an aggregate: the background (the messages in cells of no frequent text), and which
// cells belong to known texts.
type cellStats struct {
	*aggregate
	mean, variance []float64 // Background by table: messages in a cell, without frequent texts.
	free           []int     // By table: number of cells that no known text claims.
	full           []int     // By table: number of unclaimed cells with more messages than the background.
	claims         []uint8   // By cell: number of known texts that fall in it, at most 255.
}

func newCellStats(a *aggregate) *cellStats {
	tables := a.m.plan.tables()
	s := &cellStats{aggregate: a, mean: make([]float64, tables), variance: make([]float64, tables),
		free: make([]int, tables), full: make([]int, tables), claims: make([]uint8, len(a.counts))}
	s.refresh()
	return s
}

// refresh recomputes the background of each table from the cells that no known text claims, or from all cells if every
// cell is claimed.
func (s *cellStats) refresh() {
	b := int(s.m.plan.b)
	for table := range s.mean {
		free := make([]uint64, 0, b)
		for y := table * b; y < (table+1)*b; y++ {
			if s.claims[y] == 0 {
				free = append(free, s.counts[y])
			}
		}
		s.free[table] = len(free)
		if len(free) == 0 {
			free = s.counts[table*b : (table+1)*b]
		}
		s.mean[table], s.variance[table] = background(free)
		s.full[table] = 0
		for _, n := range free {
			if s.isFull(table, n) {
				s.full[table]++
			}
		}
	}
}

// isFull reports whether a cell with this many messages exceeds the background of a table.
func (s *cellStats) isFull(table int, messages uint64) bool {
	return float64(messages) > most(s.mean[table])
}

// most returns the largest number of messages with which a cell still counts as background.
func most(mean float64) float64 { return mean + trim*math.Sqrt(mean) + 1 }

// trim is how far above the mean a cell's messages may lie to count as background, in standard deviations of a Poisson
// distribution.
const trim = 3.5

// background returns the mean and the variance of the messages in cells without a frequent text. It drops cells more
// than trim standard deviations above the mean until it drops none; of a Poisson distribution that is one cell in a
// thousand. The variance is at least the mean, as of a Poisson distribution. It is larger if there are many texts of a
// few clients each.
func background(counts []uint64) (mean, variance float64) {
	limit := math.Inf(1)
	for range 50 {
		n, sum, squares := 0.0, 0.0, 0.0
		for _, count := range counts {
			if x := float64(count); x <= limit {
				n, sum, squares = n+1, sum+x, squares+x*x
			}
		}
		mean = max(1, sum) / n // If nobody sent a message, assume one: scores divide by the mean.
		variance = max(mean, squares/n-mean*mean)
		next := most(mean)
		if next >= limit {
			break
		}
		limit = next
	}
	return mean, variance
}

// whole returns the cells of a padded text in the tables that hash all of it. If free is true, it omits claimed cells.
func (s *cellStats) whole(text []byte, free bool) []uint64 {
	return s.cells(text, s.m.plan.levels-1, free)
}

// checks returns the unclaimed cells of a padded text in the check tables.
func (s *cellStats) checks(text []byte) []uint64 { return s.cells(text, s.m.plan.levels, true) }

// cells returns the cells of a padded text in the tables from first on. These tables must hash all of the text. If free
// is true, it omits claimed cells.
func (s *cellStats) cells(text []byte, first int, free bool) (cells []uint64) {
	state := absorb(s.m.plan.seed, text)
	for table := first; table < s.m.plan.tables(); table++ {
		if y := s.m.plan.number(table, state); !free || s.claims[y] == 0 {
			cells = append(cells, y)
		}
	}
	return cells
}

// tableOf returns the table of a cell.
func (s *cellStats) tableOf(y uint64) int { return int(y / s.m.plan.b) }

// claim marks all cells of a text as claimed by a known text. by is 1, or -1 to undo the mark.
func (s *cellStats) claim(text []byte, by int) {
	for table := range s.m.plan.tables() {
		y := s.m.plan.of(table, text)
		before := s.claims[y]
		s.claims[y] = uint8(min(255, int(before)+by))
		if (before == 0) == (s.claims[y] == 0) {
			continue
		}
		s.free[table] -= by
		if s.isFull(table, s.counts[y]) {
			s.full[table] -= by
		}
	}
}

// excess returns by how much the number of messages in some cells exceeds their background, and the variance of that
// excess.
func (s *cellStats) excess(cells []uint64) (more, variance float64) {
	for _, y := range cells {
		table := y / s.m.plan.b
		more += float64(s.counts[y]) - s.mean[table]
		variance += s.variance[table]
	}
	return more, variance
}

// share returns the probability that a client sends a message in one of its text's cells, if there are this many such
// cells. It does not count messages that fall there by chance.
func (s *cellStats) share(cells int) float64 { return float64(cells) / s.m.unit() }

// count estimates the number of clients that hold a text, from some of the text's cells.
func (s *cellStats) count(cells []uint64) float64 {
	more, _ := s.excess(cells)
	return more / s.share(len(cells))
}

// interval returns the numbers c of clients that the messages in some of a text's cells do not contradict. With more
// the excess of messages, w the share of a text's messages that fall in these cells, v the background's variance and z
// the normal quantile,
//
//	|more − c·w| ≤ z·√(c·w(1−w) + v) + ½,   c·w = max(0, c)·w under the root
func (s *cellStats) interval(cells []uint64, z float64) (lo, hi float64) {
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
