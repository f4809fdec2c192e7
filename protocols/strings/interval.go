package strings

// This file has the intervals of texts' counts. docs/proofs/strings.md says why they hold.

import (
	"math"
	"slices"
)

// sample is what the tables say about one text. They are the tables in which no other known text has the text's cell.
// In each of them the text's cell is one of the unclaimed cells, and the hash drew which.
type sample struct {
	share   float64 // Probability that a client with the text sends the message of a given one of the tables.
	tables  []sampleTable
	none    *grid    // Distribution of the sum if no client holds the text; computed once for the same tables.
	caps    []int    // By table: how many messages of the text's cell count at most; set by [sample.capped].
	pilot   float64  // A first estimate of the number of clients, where searches for the ends begin.
	step    float64  // The ends of intervals are multiples of it, widened outward to the next one.
	listing *listing // Only of a listed text.
}

// listing says when the search lists a text: if its cells, each capped by caps, have at least bar messages, and if they
// have at least need messages without these caps.
type listing struct {
	caps      []int
	bar, need int
}

// sampleTable is one table of a sample.
type sampleTable struct {
	seen   int     // Messages in the text's cell.
	mean   float64 // Background of the table, by [background].
	others []tally // Messages in the unclaimed cells, by rising number.
	own    int     // Number of the text's own cells in others: 1, or 0 if known texts claim it.
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

// least returns the least number of messages in the unclaimed cells.
func (t sampleTable) least() int {
	if len(t.others) == 0 {
		return 0
	}
	return t.others[0].messages
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
		t := sampleTable{seen: int(s.counts[y]), mean: s.mean[table], others: s.unclaimed[table], own: 1 - int(own)}
		t.free = 1 - t.own
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
	out.freeze()
	return out
}

// informs reports whether the sample has enough unclaimed cells for an interval whose ends each miss with probability
// tail. The least probability that cells drawn by the hash can show is that of one outcome. One is the text's own
// cells, in which the messages of others are not known, so it must be at most half the tail.
func (s sample) informs(tail float64) bool {
	outcomes := 1.
	for _, t := range s.tables {
		outcomes *= float64(t.free)
	}
	return outcomes*tail >= 2
}

// reach is how far above its expectation a cell's messages may lie to count in full, in standard deviations.
const reach = 3

// capFor returns how many messages of a cell count at most, if c clients are expected to hold the text. It prevents
// that one table in which a frequent text has the same cell decides.
func (s sample) capFor(i int, c float64) int {
	expected := s.tables[i].mean + c*s.share
	return int(math.Ceil(expected + reach*math.Sqrt(expected) + 1))
}

// rounds is how often [sample.freeze] caps the cells and estimates the count again.
const rounds = 4

// fine is how many steps between possible ends of an interval a standard deviation of the count has at least.
const fine = 50

// freeze sets the pilot and the step. The pilot starts from the median table.
func (s *sample) freeze() {
	k := float64(len(s.tables))
	if k == 0 {
		return
	}
	more, variance := make([]float64, len(s.tables)), 0.
	for i, t := range s.tables {
		more[i] = float64(t.seen) - t.mean
	}
	slices.Sort(more)
	s.pilot = max(0, more[len(more)/2]/s.share)
	for range rounds {
		sum := 0.
		for i, t := range s.tables {
			sum += float64(min(t.seen, s.capFor(i, s.pilot))) - t.mean
		}
		s.pilot = max(0, sum/s.share/k)
	}
	for _, t := range s.tables {
		variance += t.mean + s.pilot*s.share*(1-k*s.share)
	}
	s.step = max(1, math.Floor(math.Sqrt(variance)/s.share/k/fine))
}

// capped returns the sample with the caps for c clients. They depend on c and on the tables, but not on the text's own
// cells, so the law of the capped sum is that of caps which are known in advance. They change only where c clients send
// one message more to a cell. Between, a larger number of clients makes larger sums more probable.
func (s sample) capped(c float64) sample {
	block := math.Floor(c*s.share) / s.share
	s.caps = make([]int, len(s.tables))
	for i := range s.caps {
		s.caps[i] = s.capFor(i, block)
		if s.listing != nil {
			s.caps[i] = max(s.caps[i], s.listing.caps[i])
		}
	}
	return s
}

// tails are the probabilities, if c clients hold the text, that the sum of its cells' messages is at least what it is,
// and at most what it is.
type tails struct{ above, below float64 }

// middle returns the probability that the sum is larger, counting half the probability that it is equal.
func (t tails) middle() float64 { return (t.above + 1 - t.below) / 2 }

// interval returns the numbers of clients that do not make the observed sum, or one further off on the same side, less
// probable than tail. The estimate does not regard listing, but it is in the interval.
func (s sample) interval(tail float64) (estimate, lo, hi float64) {
	lo = s.lower(tail)
	hi = max(lo, s.upper(tail))
	return min(max(lo, s.estimate()), hi), lo, hi
}

// lower returns the lower end of the interval: the number above the last multiple of the step that is out. Nothing is
// below 0, so if no client holds the text, only this end can miss: 0 is out if the sum, or a larger one, has a
// probability of at most twice tail.
func (s sample) lower(tail float64) float64 {
	if s.mayBeAbsent(tail) {
		return 0
	}
	out := func(c float64) bool { return s.tails(c).above <= tail }
	last := s.last(out)
	for further := s.further(last, -1, out); further > 0; further = s.further(last, -1, out) {
		yes := further
		for yes > 0 && !out(yes) {
			yes = max(0, yes-fine*s.step)
		}
		last = s.between(yes/s.step, further/s.step, out)
	}
	return last + 1
}

// upper returns the upper end of the interval: the number below the first multiple of the step that is out.
func (s sample) upper(tail float64) float64 {
	out := func(c float64) bool { return s.tails(c).below <= tail }
	in := func(c float64) bool { return !out(c) }
	last := s.last(in)
	for further := s.further(last+s.step, 1, out); further > 0; further = s.further(last+s.step, 1, out) {
		no := further
		for in(no) {
			no += fine * s.step
		}
		last = s.between(further/s.step, no/s.step, in)
	}
	return last + s.step - 1
}

// blocks is in how many further ranges of equal caps [sample.further] looks for numbers of clients.
const blocks = 2

// further returns a number of clients that is not out, although c is: where caps change, the tails jump by about the
// probability of one outcome, so the numbers that are not out may have a gap. It looks at the numbers that are most
// probably in it: the nearest to c of the next ranges of equal caps, below if side is -1 and above if it is 1. It
// returns 0 if there is none.
func (s sample) further(c, side float64, out func(c float64) bool) float64 {
	for n := range blocks {
		edge := (math.Floor(c*s.share) + side*float64(n)) / s.share // The range of c begins at the edge of n = 0.
		at := math.Ceil(edge/s.step)*s.step - s.step                // The last multiple below the edge.
		if side > 0 {
			at = math.Ceil((edge+1/s.share)/s.step) * s.step
		}
		if at > 0 && !out(at) {
			return at
		}
	}
	return 0
}

// mayBeAbsent reports whether the interval contains 0.
func (s sample) mayBeAbsent(tail float64) bool { return s.tails(0).above > 2*tail }

// holds reports whether the interval contains c, a whole number. It agrees with [sample.interval], but computes less.
func (s sample) holds(c, tail float64) bool {
	if c == 0 {
		return s.mayBeAbsent(tail)
	}
	tooFew := func(c float64) bool { return s.tails(c).above <= tail }
	tooMany := func(c float64) bool { return s.tails(c).below <= tail }
	up, down := math.Ceil(c/s.step)*s.step, math.Floor(c/s.step)*s.step
	if tooFew(up) && !s.mayBeAbsent(tail) && s.further(up, -1, tooFew) == 0 {
		return false
	}
	return down == 0 || !tooMany(down) || s.further(down, 1, tooMany) > 0
}

// estimate returns the number of clients with which larger and smaller sums are equally probable.
func (s sample) estimate() float64 {
	s.listing = nil
	if s.tails(0).middle() >= .5 {
		return 0
	}
	last := s.last(func(c float64) bool { return s.tails(c).middle() < .5 })
	low, high := s.tails(last).middle(), s.tails(last+s.step).middle()
	return math.Round(last + s.step*min(max(0, (.5-low)/max(high-low, faint)), 1))
}

// last returns the largest multiple of the step for which holds is true, if it is true up to there. It is taken to be
// true at 0. The search starts at the pilot.
func (s sample) last(holds func(c float64) bool) float64 {
	true0, more := math.Round(s.pilot/s.step), float64(fine)
	if true0 > 0 && !holds(true0*s.step) {
		false0 := true0
		for true0 = max(0, false0-more); true0 > 0 && !holds(true0*s.step); true0 = max(0, false0-more) {
			false0, more = true0, 2*more
		}
		return s.between(true0, false0, holds)
	}
	false0 := true0 + more
	for ; holds(false0 * s.step); false0 += more {
		true0, more = false0, 2*more
	}
	return s.between(true0, false0, holds)
}

// between does the work of [sample.last] between two multiples of the step, for which holds is true and false.
func (s sample) between(yes, no float64, holds func(c float64) bool) float64 {
	for no-yes > 1 {
		if mid := math.Floor((yes + no) / 2); holds(mid * s.step) {
			yes = mid
		} else {
			no = mid
		}
	}
	return yes * s.step
}

// mostPoints is the most grid points of one cell's messages. If a cell can have more, the grid is coarser than 1.
const mostPoints = 256

// tails returns the tails if c clients hold the text. c is a whole number.
func (s sample) tails(c float64) tails {
	s = s.capped(c)
	if s.listing != nil && s.mayMiss(c) {
		return s.tailsIfListed(c)
	}
	step, sum, own := 1, 0, s.own(c)
	for i, t := range s.tables {
		most := s.caps[i]
		step = max(step, (most-t.least()-own[i].least+mostPoints-1)/mostPoints)
		sum += min(t.seen, most)
	}
	all := s.sum(c, own, step)
	at := float64(sum)/float64(step) - float64(all.least)
	return tails{above: all.from(int(math.Floor(at))), below: all.upTo(int(math.Ceil(at)))}
}

// sum returns the distribution of the sum of the cells' messages, in steps. If no client holds the text, it depends
// only on the tables: what the text's own cell has is then what others have there.
func (s sample) sum(c float64, own []grid, step int) grid {
	absent := c == 0 && s.listing == nil
	if absent && s.none.p != nil {
		return *s.none
	}
	all, spare := grid{p: []float64{1}}, []float64(nil)
	for i := range s.tables {
		before := all.p
		all = all.plus(s.cell(i, c, own[i], step, s.caps[i], 0).trimmed(), spare)
		spare = before
	}
	if absent {
		*s.none = all
	}
	return all
}

// grid is a distribution on multiples of a step: p[i] is the probability of least + i steps.
type grid struct {
	least int
	p     []float64
}

// plus returns the distribution of the sum of two independent numbers. It may use the memory of spare.
func (g grid) plus(o grid, spare []float64) grid {
	n := len(g.p) + len(o.p) - 1
	if cap(spare) < n {
		spare = make([]float64, n, 2*n)
	}
	out := grid{g.least + o.least, spare[:n]}
	clear(out.p)
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
func (s sample) cell(i int, c float64, own grid, step, most int, tilt float64) grid {
	t := s.tables[i]
	own = own.coarse(step)
	out := grid{p: make([]float64, most/step+2)}
	if step == 1 {
		out.p = out.p[:most+1]
	}
	last := len(out.p) - 1
	put := func(steps int, p float64) {
		at := min(last, steps+own.least)
		inside := min(len(own.p), last-at)
		for j, q := range own.p[:inside] {
			out.p[at+j] += p * q
		}
		for _, q := range own.p[inside:] {
			out.p[last] += p * q
		}
	}
	add := func(others int, p float64) {
		p *= 1 + tilt*float64(others)
		low, part := others/step, float64(others%step)/float64(step)
		put(low, p*(1-part))
		if part > 0 {
			put(low+1, p*part)
		}
	}
	each := 1 / float64(t.free)
	for _, other := range t.others {
		cells := other.cells
		if other.messages == t.seen {
			cells -= t.own
		}
		if cells > 0 {
			add(other.messages, each*float64(cells))
		}
	}
	rest := max(0, float64(t.seen)-c*s.share)
	low := math.Floor(rest)
	add(int(low), each*(1-(rest-low)))
	if rest > low {
		add(int(low)+1, each*(rest-low))
	}
	return out
}

// coarse returns a distribution of step 1 in larger steps.
func (g grid) coarse(step int) grid {
	if step == 1 {
		return g
	}
	out := grid{least: floorDiv(g.least, step)}
	out.p = make([]float64, floorDiv(g.least+len(g.p)-1, step)+2-out.least)
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

// own returns, by table, the distribution of the messages that c clients with the text send in it. Together they send
// Bin(c, k·share). Its share of one table is taken as Bin(c/k, k·share), with c/k rounded up or down so that the sum is
// exact.
func (s sample) own(c float64) []grid {
	k, out := float64(len(s.tables)), make([]grid, len(s.tables))
	for i := range out {
		clients := math.Floor((c + float64(i)) / k)
		if i > 0 && clients == math.Floor((c+float64(i-1))/k) {
			out[i] = out[i-1]
			continue
		}
		out[i] = binomial(clients, k*s.share)
	}
	return out
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
	return s.margin(c, s.listing.caps, s.listing.bar) < surely || s.margin(c, s.caps, s.need()) < surely
}

// need returns the least sum, capped as the interval is, with which the text is listed.
func (s sample) need() int {
	sum := 0
	for i, t := range s.tables {
		sum += min(t.seen, s.caps[i])
	}
	return min(s.listing.need, sum)
}

// margin returns how far the expected messages of c clients, with cells capped by caps, are above bar, in standard
// deviations.
func (s sample) margin(c float64, caps []int, bar int) float64 {
	mean, variance, own := -float64(bar), 1., s.own(c)
	for i := range s.tables {
		g, first, second := s.cell(i, c, own[i], 1, caps[i], 0), 0., 0.
		for n, p := range g.p {
			first += p * float64(n)
			second += p * float64(n*n)
		}
		mean += first
		variance += max(0, second-first*first)
	}
	return mean / math.Sqrt(variance)
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
// listed if all together is at most Σ caps − bar below, and the sum of both at least need − Σ caps.
func (s sample) tailsIfListed(c float64) tails {
	room, step, sum, seen := -s.listing.bar, 1, 0, 0
	for i, t := range s.tables {
		room += s.listing.caps[i]
		step = max(step, (s.caps[i]-s.listing.caps[i]+mostAbove-1)/mostAbove)
		seen += min(t.seen, s.caps[i])
		sum += min(t.seen, s.caps[i]) - s.listing.caps[i]
	}
	room = max(0, room)
	step = max(step, (room+mostBelow-1)/mostBelow)
	rows := max(0, float64(room)-s.overstated(c)) / float64(step) // The last row counts in part.
	state, own := [][]float64{{1}}, s.own(c)                      // By steps below, then by steps above.
	for i := range s.tables {
		cell := s.cell(i, c, own[i], 1, s.caps[i], 0).trimmed()
		cell.least -= s.listing.caps[i]
		state = plusTable(state, cell.coarse(step), (room+step-1)/step)
	}
	all, out, at := 0., tails{}, float64(sum)/float64(step)
	need := math.Floor(float64(sum-seen+s.need()) / float64(step))
	for below, row := range state {
		part := min(max(0, rows-float64(below)+1), 1)
		for above, p := range row {
			if float64(above-below) < need {
				continue
			}
			p *= part
			all += p
			if float64(above-below) >= math.Floor(at) {
				out.above += p
			}
			if float64(above-below) <= math.Ceil(at) {
				out.below += p
			}
		}
	}
	if all == 0 { // With so few clients it is never listed.
		return tails{0, 1}
	}
	return tails{out.above / all, out.below / all}
}

// overstated returns by how much the law overstates the expected sum that decides about listing. In one table, the law
// of [sample.own] varies less than Bin(c, share), which is exact there. So fewer of its messages are above a cap.
func (s sample) overstated(c float64) (more float64) {
	own, exact := s.own(c), binomial(c, s.share)
	for i, most := range s.listing.caps {
		more += s.cell(i, c, own[i], 1, most, 0).mean() - s.cell(i, c, exact, 1, most, 0).mean()
	}
	return max(0, more)
}

// mean returns the mean of a distribution of step 1.
func (g grid) mean() (mean float64) {
	for i, p := range g.p {
		mean += p * float64(g.least+i)
	}
	return mean
}

// plusTable adds the messages of one table, less its cap, to a state of [sample.tailsIfListed] with at most room steps
// below.
func plusTable(state [][]float64, g grid, room int) [][]float64 {
	top := g.least + len(g.p) - 1
	out := make([][]float64, min(room, len(state)-1-min(0, g.least))+1)
	width := len(state[0]) + max(0, top)
	all := make([]float64, len(out)*width)
	for below := range out {
		out[below] = all[below*width : (below+1)*width]
	}
	for below, row := range state {
		for len(row) > 0 && row[len(row)-1] == 0 {
			row = row[:len(row)-1]
		}
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
// if c clients hold it. With O their messages, it is the derivative at 0 of ln E[(1+tO)·1{listed}] − ln E[1+tO]. Of the
// two conditions for listing it takes the one that changes more.
func (s sample) chosen(c float64) float64 {
	s = s.capped(c)
	more := func(caps []int, bar int) float64 {
		if s.margin(c, caps, bar) >= surely {
			return 0
		}
		return (s.logAtLeast(c, tilt, caps, bar) - s.logAtLeast(c, 0, caps, bar)) / tilt
	}
	return max(more(s.listing.caps, s.listing.bar), more(s.caps, s.need()))
}

// logAtLeast returns the logarithm of the probability that the cells of a text of c clients, capped by caps, have at
// least bar messages, if the law of each table's cell has the density 1+tO, up to a factor.
func (s sample) logAtLeast(c, t float64, caps []int, bar int) float64 {
	all, own := grid{p: []float64{1}}, s.own(c)
	for i := range s.tables {
		g := s.cell(i, c, own[i], 1, caps[i], t)
		sum := g.from(0)
		for j := range g.p {
			g.p[j] /= sum
		}
		all = all.plus(g, nil)
	}
	return math.Log(max(math.SmallestNonzeroFloat64, all.from(bar-all.least)))
}
