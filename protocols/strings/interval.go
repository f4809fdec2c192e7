package strings

// This file has the intervals of texts' counts. docs/proofs/strings.md says why they hold.

import (
	"cmp"
	"math"
	"slices"
)

// sample is what the tables say about one text. They are the tables in which no other known text has the text's cell.
// In each of them the text's cell is one of the unclaimed cells, and the hash drew which.
type sample struct {
	share  float64 // Probability that a client with the text sends the message of a given one of the tables.
	tables []sampleTable
	none   *grid // Distribution of the sum if no client holds the text; computed once for texts with the same tables.
	caps   []int // Only of a listed text: the cap of each cell's messages in the sum that decides about listing.
	bar    int   // Only of a listed text: the least value of that sum with which the text is listed.
}

// sampleTable is one table of a sample.
type sampleTable struct {
	seen   int     // Messages in the text's cell.
	mean   float64 // Background of the table, by [background].
	others []tally // Messages in the other unclaimed cells, by rising number.
	free   int     // Number of unclaimed cells, with the text's own.
}

// tally says that a number of cells has this number of messages each.
type tally struct{ messages, cells int }

// tallies returns how many cells have each number of messages.
func tallies(counts []uint64) (out []tally) {
	counts = slices.Clone(counts)
	slices.Sort(counts)
	for i, n := range counts {
		if i == 0 || n != counts[i-1] {
			out = append(out, tally{messages: int(n)})
		}
		out[len(out)-1].cells++
	}
	return out
}

// without returns the tallies without one cell that has this number of messages.
func without(all []tally, messages int) []tally {
	i, _ := slices.BinarySearchFunc(all, messages, func(t tally, n int) int { return cmp.Compare(t.messages, n) })
	out := slices.Clone(all)
	out[i].cells--
	return out
}

// least returns the least number of messages in the other unclaimed cells.
func (t sampleTable) least() int {
	for _, other := range t.others {
		if other.cells > 0 {
			return other.messages
		}
	}
	return 0
}

// sampleOf returns what some tables from first on say about a text. If the text is claimed, it is as if it were not.
func (s *cellStats) sampleOf(text []byte, first int, claimed bool) sample {
	own := uint8(0)
	if claimed {
		own = 1
	}
	out, key := sample{share: 1 / s.m.unit()}, []byte{}
	state := absorb(s.m.plan.seed, text)
	for table := first; table < s.m.plan.tables(); table++ {
		y := s.m.plan.number(table, state)
		if s.claims[y] != own {
			continue
		}
		t := sampleTable{seen: int(s.counts[y]), mean: s.mean[table], others: s.unclaimed[table]}
		if !claimed {
			t.others = without(t.others, t.seen)
		}
		t.free = 1
		for _, other := range t.others {
			t.free += other.cells
		}
		out.tables = append(out.tables, t)
		key = append(key, byte(table)) // A task has at most 192 tables.
	}
	if claimed { // The law has the text's own cell besides the unclaimed ones, so no other text has it.
		out.none = &grid{}
	} else if out.none = s.absent[string(key)]; out.none == nil {
		out.none = &grid{}
		s.absent[string(key)] = out.none
	}
	return out
}

// informs reports whether the sample has enough unclaimed cells for an interval whose ends each miss with probability
// tail. The least probability that cells drawn by the hash can show is that of one outcome.
func (s sample) informs(tail float64) bool {
	outcomes := 1.
	for _, t := range s.tables {
		outcomes *= float64(t.free)
	}
	return outcomes*tail >= 1
}

// reach is how far above its expectation a cell's messages may lie to count in full, in standard deviations.
const reach = 3

// capFor returns how many messages of a cell count at most, if c clients hold the text. It prevents that one table in
// which a frequent text has the same cell decides.
func (s sample) capFor(i int, c float64) int {
	expected := s.tables[i].mean + c*s.share
	most := int(math.Ceil(expected + reach*math.Sqrt(expected) + 1))
	if s.caps != nil {
		most = max(most, s.caps[i])
	}
	return most
}

// tails are the probabilities, if c clients hold the text, that the sum of its cells' messages is at least what it is,
// and at most what it is.
type tails struct{ above, below float64 }

// middle returns the probability that the sum is larger, counting half the probability that it is equal.
func (t tails) middle() float64 { return (t.above + 1 - t.below) / 2 }

// interval returns the numbers of clients that do not make the observed sum, or one further off on the same side, less
// probable than tail. estimate does not regard listing.
func (s sample) interval(tail float64) (estimate, lo, hi float64) {
	estimate, lo = s.estimate(), s.lower(tail)
	guess := max(1, estimate)
	for s.tails(guess).below > tail {
		guess = math.Ceil(guess*1.3) + 1
	}
	hi = firstFrom(lo, guess, func(c float64) bool { return s.tails(c).below <= tail })
	return estimate, lo, max(lo, hi-1)
}

// lower returns the lower end of the interval. Nothing is below 0, so if no client holds the text, only this end can
// miss: 0 is out if the sum, or a larger one, has a probability of at most twice tail.
func (s sample) lower(tail float64) float64 {
	if s.mayBeAbsent(tail) {
		return 0
	}
	guess := 1.
	for s.tails(guess).above <= tail {
		guess *= 2
	}
	// The search leaves a gap above the last number that is out. The interval has it, so that it is not too short.
	last := 0.
	firstFrom(1, guess, func(c float64) bool {
		in := s.tails(c).above > tail
		if !in {
			last = max(last, c)
		}
		return in
	})
	return last + 1
}

// mayBeAbsent reports whether the interval contains 0.
func (s sample) mayBeAbsent(tail float64) bool { return s.tails(0).above > 2*tail }

// holds reports whether the interval contains c, a whole number, or whether there is none.
func (s sample) holds(c, tail float64) bool {
	switch {
	case !s.informs(tail):
		return true
	case c == 0:
		return s.mayBeAbsent(tail)
	}
	t := s.tails(c)
	return t.above > tail && t.below > tail
}

// estimate returns the number of clients with which larger and smaller sums are equally probable.
func (s sample) estimate() float64 {
	s.caps = nil
	guess := 1.
	for s.tails(guess).middle() < .5 {
		guess *= 2
	}
	return firstFrom(0, guess, func(c float64) bool { return s.tails(c).middle() >= .5 })
}

// firstFrom returns the least whole number from lo to hi for which holds is true, if it is true from there on. Numbers
// above 1000 are not resolved further than to a thousandth. It returns hi if holds is false everywhere.
func firstFrom(lo, hi float64, holds func(float64) bool) float64 {
	if holds(lo) {
		return lo
	}
	for hi-lo > max(1, hi/1000) {
		if mid := math.Floor((lo + hi) / 2); holds(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// mostPoints is the most grid points of one cell's messages. If a cell can have more, the grid is coarser than 1.
const mostPoints = 256

// tails returns the tails if c clients hold the text. c is a whole number.
func (s sample) tails(c float64) tails {
	if s.caps != nil && s.mayMiss(c) {
		return s.tailsIfListed(c)
	}
	step, sum := 1, 0
	for i, t := range s.tables {
		most := s.capFor(i, c)
		step = max(step, (most-t.least()-s.own(i, c).least+mostPoints-1)/mostPoints)
		sum += min(t.seen, most)
	}
	all := s.sum(c, step)
	at := float64(sum)/float64(step) - float64(all.least)
	return tails{above: all.from(int(math.Floor(at))), below: all.upTo(int(math.Ceil(at)))}
}

// sum returns the distribution of the sum of the cells' messages, in steps. If no client holds the text, it depends
// only on the tables: what the text's own cell has is then what others have there.
func (s sample) sum(c float64, step int) grid {
	if c == 0 && s.caps == nil && s.none.p != nil {
		return *s.none
	}
	all := grid{p: []float64{1}}
	for i := range s.tables {
		all = all.plus(s.cell(i, c, step, s.capFor(i, c), 0).trimmed())
	}
	if c == 0 && s.caps == nil {
		*s.none = all
	}
	return all
}

// grid is a distribution on multiples of a step: p[i] is the probability of least + i steps.
type grid struct {
	least int
	p     []float64
}

func (g grid) plus(o grid) grid {
	out := grid{g.least + o.least, make([]float64, len(g.p)+len(o.p)-1)}
	for i, p := range g.p {
		if p == 0 {
			continue
		}
		row := out.p[i : i+len(o.p)]
		for j, q := range o.p {
			row[j] += p * q
		}
	}
	return out
}

func (g grid) from(i int) (sum float64) {
	for _, p := range g.p[min(max(i, 0), len(g.p)):] {
		sum += p
	}
	return sum
}

func (g grid) upTo(i int) (sum float64) {
	for _, p := range g.p[:min(max(i+1, 0), len(g.p))] {
		sum += p
	}
	return sum
}

// add adds a probability at a number. If the number lies between grid points, it divides the probability so that the
// mean is kept.
func (g grid) add(n, step int, p float64) {
	if step == 1 {
		g.p[n-g.least] += p
		return
	}
	low := floorDiv(n, step)
	part := float64(n-low*step) / float64(step)
	g.p[low-g.least] += p * (1 - part)
	g.p[low+1-g.least] += p * part
}

// cell returns the distribution of the messages in the text's cell of the i-th table, at most most, in steps. They are
// the messages of other texts, those of an unclaimed cell drawn uniformly, and the text's own. What others have in the
// text's own cell is not known. It is taken as what was seen without what c clients are expected to send there. Each
// number O of messages of others has its probability times 1 + tilt·O.
func (s sample) cell(i int, c float64, step, most int, tilt float64) grid {
	t := s.tables[i]
	own := s.own(i, c).coarse(step)
	out := grid{p: make([]float64, most/step+2)}
	each := 1 / float64(t.free)
	put := func(steps int, p float64) {
		for j, q := range own.p {
			out.p[min(len(out.p)-1, steps+own.least+j)] += p * q
		}
	}
	if step == 1 {
		out.p = out.p[:most+1]
	}
	add := func(others int, p float64) {
		p *= 1 + tilt*float64(others)
		low, part := others/step, float64(others%step)/float64(step)
		put(low, p*(1-part))
		if part > 0 {
			put(low+1, p*part)
		}
	}
	for _, other := range t.others {
		if other.cells > 0 {
			add(other.messages, each*float64(other.cells))
		}
	}
	rest := max(0, float64(t.seen)-c*s.share)
	low := math.Floor(rest)
	add(int(low), each*(1-(rest-low)))
	add(int(low)+1, each*(rest-low))
	return out
}

// coarse returns a distribution of step 1 in larger steps.
func (g grid) coarse(step int) grid {
	if step == 1 {
		return g
	}
	out := grid{least: g.least / step}
	out.p = make([]float64, (g.least+len(g.p)-1)/step+2-out.least)
	for i, p := range g.p {
		out.add(g.least+i, step, p)
	}
	return out
}

// floorDiv returns ⌊a/b⌋ for b > 0.
func floorDiv(a, b int) int { return int(math.Floor(float64(a) / float64(b))) }

// faint is the probability that a grid may lose at either end.
const faint = 1e-13

// trimmed returns the grid without faint points at its ends.
func (g grid) trimmed() grid {
	lo, hi := 0, len(g.p)
	for sum := 0.; lo < hi; lo++ {
		if sum += g.p[lo]; sum > faint {
			break
		}
	}
	for sum := 0.; hi > lo; hi-- {
		if sum += g.p[hi-1]; sum > faint {
			break
		}
	}
	return grid{g.least + lo, g.p[lo:hi]}
}

// own returns the distribution of the messages that c clients with the text send in the i-th of k tables. Together they
// send Bin(c, k·share). Its share of one table is taken as Bin(c/k, k·share), with c/k rounded up or down so that the
// sum is exact.
func (s sample) own(i int, c float64) grid {
	k := float64(len(s.tables))
	clients := math.Floor((c + float64(i)) / k)
	return binomial(clients, k*s.share)
}

// binomial returns a binomial distribution without what is improbable. It proceeds up and down from the mean.
func binomial(n, p float64) grid {
	if p >= 1 { // One level: every table hashes the whole text.
		return grid{least: int(n), p: []float64{1}}
	}
	middle := min(n, math.Floor((n+1)*p)) // With p just below 1, the product may round to n+1.
	odds := p / (1 - p)
	var down []float64
	q := 1.
	for k := middle; k >= 0 && q > faint; k-- {
		down = append(down, q)
		q *= k / ((n - k + 1) * odds)
	}
	out := grid{least: int(middle) - len(down) + 1}
	slices.Reverse(down)
	out.p = down
	q = 1.
	for k := middle; k < n; k++ {
		if q *= (n - k) * odds / (k + 1); q <= faint {
			break
		}
		out.p = append(out.p, q)
	}
	sum := out.from(0)
	for i := range out.p {
		out.p[i] /= sum
	}
	return out
}

// surely is how many standard deviations a sum must lie above the bar for a text to be listed for sure.
const surely = 5

// mayMiss reports whether a text of c clients may be missed by the search, because of its checks.
func (s sample) mayMiss(c float64) bool {
	mean, variance := -float64(s.bar), 0.
	for i := range s.tables {
		g, first, second := s.cell(i, c, 1, s.caps[i], 0), 0., 0.
		for n, p := range g.p {
			first += p * float64(n)
			second += p * float64(n*n)
		}
		mean += first
		variance += max(0, second-first*first)
	}
	return mean < surely*math.Sqrt(variance)+surely
}

// few returns the number of clients two standard deviations below the text's count, without regard to frequent texts.
func (s sample) few() float64 {
	sum, mean := 0., 0.
	for _, t := range s.tables {
		sum += float64(t.seen)
		mean += t.mean
	}
	return max(0, math.Floor((sum-mean-2*math.Sqrt(sum))/s.share/float64(len(s.tables))))
}

// The grid of [sample.tailsIfListed] has at most mostBelow steps below the caps in all, and about mostAbove in each
// table above them.
const (
	mostBelow = 96
	mostAbove = 32
)

// tailsIfListed returns the tails given that the text is listed. In each table the messages lie below the cap of the
// sum that decides about listing, or above it. The sums of the differences, below and above, are the state. A text is
// listed if all together is at most Σ caps − bar below.
func (s sample) tailsIfListed(c float64) tails {
	room, step, sum := -s.bar, 1, 0
	for i, t := range s.tables {
		room += s.caps[i]
		most := s.capFor(i, c)
		step = max(step, (most-s.caps[i]+mostAbove-1)/mostAbove)
		sum += min(t.seen, most) - s.caps[i]
	}
	room = max(0, room)
	step = max(step, (room+mostBelow-1)/mostBelow)
	state := [][]float64{{1}} // By steps below, then by steps above.
	for i := range s.tables {
		state = s.plusTable(state, i, c, step, (room+step-1)/step)
	}
	all, out, at := 0., tails{}, float64(sum)/float64(step)
	for below, row := range state {
		for above, p := range row {
			all += p
			if float64(above-below) >= math.Floor(at) {
				out.above += p
			}
			if float64(above-below) <= math.Ceil(at) {
				out.below += p
			}
		}
	}
	return tails{out.above / all, out.below / all}
}

// plusTable adds the messages of the i-th table to a state of [sample.tailsIfListed] with at most room steps below.
func (s sample) plusTable(state [][]float64, i int, c float64, step, room int) [][]float64 {
	cell := s.cell(i, c, 1, s.capFor(i, c), 0).trimmed()
	g := grid{least: floorDiv(cell.least-s.caps[i], step)}
	g.p = make([]float64, floorDiv(cell.least+len(cell.p)-1-s.caps[i], step)+2-g.least)
	for n, p := range cell.p {
		g.add(cell.least+n-s.caps[i], step, p)
	}
	top := g.least + len(g.p) - 1
	out := make([][]float64, min(room, len(state)-1-min(0, g.least))+1)
	for below := range out {
		out[below] = make([]float64, len(state[0])+max(0, top))
	}
	for below, row := range state {
		for j, p := range g.p {
			offset := g.least + j
			if at := below - min(0, offset); p > 0 && at <= room {
				into := out[at][max(0, offset):]
				for above, q := range row {
					into[above] += p * q
				}
			}
		}
	}
	return out
}

// tilt is the step of the derivative that [sample.chosen] takes.
const tilt = 1e-4

// chosen returns how many more messages other texts are expected to have in a text's cells because the text is listed,
// if c clients hold it. With O their messages, it is the derivative at 0 of ln E[(1+tO)·1{listed}] − ln E[1+tO].
func (s sample) chosen(c float64) float64 {
	if !s.mayMiss(c) {
		return 0
	}
	return (s.logListed(c, tilt) - s.logListed(c, 0)) / tilt
}

// logListed returns the logarithm of the probability that a text of c clients is listed, if the law of each table's
// cell has the density 1+tO, up to a factor.
func (s sample) logListed(c, t float64) float64 {
	all := grid{p: []float64{1}}
	for i := range s.tables {
		g := s.cell(i, c, 1, s.caps[i], t)
		sum := g.from(0)
		for j := range g.p {
			g.p[j] /= sum
		}
		all = all.plus(g)
	}
	return math.Log(all.from(s.bar - all.least))
}
