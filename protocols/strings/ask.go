package strings

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// Ask counts given texts in the tables that hash a whole text. It cuts each text as clients do. With the given
// confidence, in (0, 1), all intervals hold together, by Bonferroni's correction. A string that is not a valid text is
// an error about "value". It first searches for frequent texts, because their messages must not count for other texts.
// Then it counts the given texts twice: those that clients certainly have do not count for the others the second time.
func (a *aggregate) Ask(texts []string, confidence float64) (counts []protocols.TextCount, rest protocols.TextCount,
	err error) {
	return newSearch(a).ask(texts, confidence)
}

// ask does the work of [aggregate.Ask].
func (s *search) ask(texts []string, confidence float64) (out []protocols.TextCount, rest protocols.TextCount,
	err error) {
	samples, err := s.distinct(texts)
	if err != nil {
		return nil, rest, err
	}
	least := s.run(wide)
	rest = s.rest(confidence, least)
	tail := s.samples(samples, confidence)
	counted := map[string]protocols.TextCount{}
	for _, text := range texts {
		padded, _ := s.m.plan.pad([]byte(text))
		c, ok := counted[string(padded)]
		if !ok {
			c = countFrom(samples[string(padded)], tail)
			counted[string(padded)] = c
		}
		c.Text = text
		out = append(out, c)
	}
	return out, rest, nil
}

// distinct returns an empty sample for each given text, by padded text.
func (s *search) distinct(texts []string) (map[string]sample, error) {
	out := map[string]sample{}
	for _, text := range texts {
		padded, err := s.m.plan.pad([]byte(text))
		if err != nil {
			return nil, err
		}
		out[string(padded)] = sample{}
	}
	return out, nil
}

// samples sets what the tables say about given padded texts. It returns the probability with which each end of an
// interval may miss. All texts that were found, or that clients certainly have, claim their cells.
func (s *search) samples(texts map[string]sample, confidence float64) (tail float64) {
	tail = (1 - confidence) / 2 / float64(max(1, len(texts)))
	s.sample(texts)
	var order []string // one order, so that rounding is always the same
	for text := range texts {
		order = append(order, text)
	}
	slices.Sort(order)
	for _, text := range order {
		if x := texts[text]; !s.known[text] && x.informs(tail) && !x.mayBeAbsent(tail) {
			s.known[text] = true
			s.claim([]byte(text), 1)
		}
	}
	s.sample(texts)
	return tail
}

// sample sets what the tables say about given padded texts. known has the texts that claim their cells.
func (s *search) sample(texts map[string]sample) {
	s.tally()
	for text := range texts {
		texts[text] = s.sampleOf([]byte(text), s.m.plan.levels-1, s.known[text])
	}
}

// countFrom estimates a text's count from a sample, with an interval whose ends each miss with probability tail. If the
// sample is too small for one, there is no estimate either.
func countFrom(x sample, tail float64) protocols.TextCount {
	if !x.informs(tail) {
		return protocols.TextCount{Hi: math.Inf(1)}
	}
	clients, lo, hi := x.interval(tail)
	return protocols.TextCount{Clients: clients, Lo: lo, Hi: hi}
}

// rest estimates how many clients have none of the listed texts, with an interval. Let X be the number of messages in
// the unclaimed cells of the k tables that hash a whole text, and φ the share of a table's cells that are unclaimed.
// Clients of other texts send wφ messages each there, w = k(1−γ)/T, and all other messages are uniform over all cells.
// So X/φ, less the expected number of the uniform messages, counts w for each client. X is nearly binomial. Which cells
// are unclaimed depends on the hash, so texts with many clients add to the variance; the cells' own variance shows
// them. A text is more likely listed if others have many messages in its cells, so fewer are in the unclaimed cells. It
// is less likely listed if known texts claim many of its cells, so texts that are not listed have fewer messages in
// unclaimed cells. The upper end is raised by both numbers, divided by the least φ of all tables, and the second adds
// to the variance.
func (s *search) rest(confidence, ref float64) (out protocols.TextCount) {
	b, total, k, sum, variance, least := float64(s.m.plan.b), float64(s.m.plan.tables()), 0., 0., 0., 1.
	s.tally()
	uniform := (float64(s.Reports())*s.m.gamma() + s.added()) / total
	for table := s.m.plan.levels - 1; table < s.m.plan.tables(); table++ {
		n, first, second := 0., 0., 0.
		for _, t := range s.unclaimed[table] {
			messages, cells := float64(t.messages), float64(t.cells)
			n, first, second = n+cells, first+cells*messages, second+cells*messages*messages
		}
		if share := n / b; n > 0 {
			k++
			sum += first/share - uniform
			least = min(least, share)
			variance += (first*(1-share*float64(s.m.plan.checks+1)/total) +
				(1-share)*max(0, second-first*first/n-first)) / share / share
		}
	}
	if k == 0 {
		return protocols.TextCount{Hi: math.Inf(1)}
	}
	chosen := 0.
	var sizes []float64
	for _, text := range s.list {
		x := s.listed(text, ref)
		chosen += x.chosen(x.few())
		sizes = append(sizes, x.pilot*x.share)
	}
	hidden, square := s.hidden(sizes, ref)
	chosen += hidden
	variance += square / least / least
	w, reach := k/s.m.unit(), protocols.Quantile(confidence)*math.Sqrt(variance)
	most := float64(s.Reports())
	within := func(messages float64) float64 { return min(max(0, messages/w), most) }
	return protocols.TextCount{Clients: within(sum), Lo: within(sum - reach), Hi: within(sum + reach + chosen/least)}
}

// rare is the probability of more claimed checks that [search.hidden] neglects.
const rare = 1e-4

// hidden returns how many messages more than expected are in claimed cells, of texts that are not listed for this
// reason, and the expected square of that. sizes has the messages per cell of the listed texts. For each listed text it
// takes as many others of its size that are not listed as follow from its probability of being listed. How many of a
// text's checks are claimed is binomial. Given that, it is listed if its messages, about Poisson, reach the limit.
func (s *search) hidden(sizes []float64, ref float64) (more, square float64) {
	checks, unclaimed := s.m.plan.checks, 0.
	tables := make([]int, checks)
	for i := range tables {
		tables[i] = s.m.plan.levels + i
		unclaimed += float64(s.free[tables[i]]) / float64(s.m.plan.b) / float64(checks)
	}
	claimed := binomial(float64(checks), 1-unclaimed)
	lost := make([]struct{ p, first, second float64 }, len(sizes))
	for at := len(claimed.p) - 1; at >= 0; at-- {
		n, p, sure := claimed.least+at, claimed.p[at], true
		if claimed.from(at) < rare {
			continue
		}
		limit, free := 0., tables[:checks-n]
		if len(free) >= min(fewestFree, checks) {
			limit = s.limit(free, ref, false)
		}
		for i, size := range sizes {
			missed := 1.
			if limit > 0 {
				sum := 0.
				for _, table := range free {
					sum += min(s.mean[table]+size, float64(s.capAt(table, ref)))
				}
				missed = math.Erfc((sum-limit)/math.Sqrt(2*sum)) / 2
			}
			sure = sure && missed < rare
			off := (float64(n) - float64(checks)*(1-unclaimed)) * size
			lost[i].p += p * missed
			lost[i].first += p * missed * off
			lost[i].second += p * missed * off * off
		}
		if sure { // With fewer claimed checks, all are listed.
			break
		}
	}
	for _, l := range lost {
		listed := max(.5, 1-l.p) // A text that is rarely listed tells little about others.
		more += max(0, l.first) / listed
		square += l.second / listed
	}
	return more, square
}

// cellStats describes the cells of an aggregate: the background (the messages in cells of no frequent text), and which
// cells belong to known texts.
type cellStats struct {
	*aggregate
	mean, variance []float64        // Background by table: messages in a cell, without frequent texts.
	free           []int            // By table: number of cells that no known text claims.
	full           []int            // By table: number of unclaimed cells with more messages than the background.
	claims         []uint8          // By cell: number of known texts that fall in it, at most 255.
	unclaimed      [][]tally        // By table: messages in the cells that no known text claims, when tally ran last.
	absent         map[string]*grid // By tables: the field none of a [sample].
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
		free := s.unclaimedCounts(table)
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

// tally counts the messages of unclaimed cells in the tables that hash a whole text.
func (s *cellStats) tally() {
	s.unclaimed, s.absent = make([][]tally, len(s.mean)), map[string]*grid{}
	for table := s.m.plan.levels - 1; table < len(s.mean); table++ {
		s.unclaimed[table] = tallies(s.unclaimedCounts(table))
	}
}

// unclaimedCounts returns the numbers of messages in the cells of a table that no known text claims.
func (s *cellStats) unclaimedCounts(table int) []uint64 {
	b := int(s.m.plan.b)
	free := make([]uint64, 0, b)
	for y := table * b; y < (table+1)*b; y++ {
		if s.claims[y] == 0 {
			free = append(free, s.counts[y])
		}
	}
	return free
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

// checks returns the unclaimed cells of a padded text in the check tables.
func (s *cellStats) checks(text []byte) (cells []uint64) {
	state := absorb(s.m.plan.seed, text)
	for table := s.m.plan.levels; table < s.m.plan.tables(); table++ {
		if y := s.m.plan.number(table, state); s.claims[y] == 0 {
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

// excess returns by how much the number of messages in some cells exceeds their background.
func (s *cellStats) excess(cells []uint64) (more float64) {
	for _, y := range cells {
		more += float64(s.counts[y]) - s.mean[s.tableOf(y)]
	}
	return more
}
