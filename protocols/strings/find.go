package strings

import (
	"cmp"
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// The search. Each pass searches for texts of fewer clients than the previous pass. What one pass lists, the next ones
// take as known.
const (
	wide        = 1 << 15 // Prefixes that each level keeps in the passes for the fewest clients.
	narrowed    = 8       // Factor by which passes for more clients keep fewer.
	wideBytes   = 1 << 21 // Bytes of prefixes, so that the time does not grow with texts of more than 64 bytes.
	mostPasses  = 16
	lastPasses  = 6 // Most passes for the fewest clients.
	falseChance = .005
	leastSigmas = 12.5 // Standard deviations of a count over all tables that a text must have of its own.
	sureSigmas  = 2.1  // This far above the threshold, 98 of 100 batches list the text.
	fewestFree  = 3    // Least number of checks whose cell no listed text has.
)

// search is the state of a search.
type search struct {
	*cellStats
	model  *model
	list   [][]byte  // Padded texts.
	sizes  []float64 // Messages of each listed text in each of its cells.
	known  map[string]bool
	cache  map[nullKey]float64 // Limits, valid as long as backgrounds and full cells stay.
	trails []*trail            // Trails of the passes; of those for the fewest clients, only the last.
	dryRun bool                // The search lists nothing.
}

// Find lists frequent texts. The levels alone propose texts. The checks, whose counts had no part in the proposal,
// decide. Together, all passes list a text without clients with a probability of at most FalseChance. Each listed
// text claims its cells; their messages do not count for others.
func (a *aggregate) Find(confidence float64) protocols.FoundTexts {
	return newSearch(a).find(confidence, wide)
}

// find is [aggregate.Find] with at most width prefixes.
func (s *search) find(confidence float64, width int) protocols.FoundTexts {
	a := s.aggregate
	out := protocols.FoundTexts{FalseChance: falseChance}
	if a.messages() == 0 {
		return out
	}
	least := s.least()
	need := s.needed()
	out.Threshold = need
	if a.draws > 0 {
		relays := max(1, uint64(a.m.task.VerifierHop()))
		out.PlantedByRelay = uint64(a.added() / float64(relays) / need)
	}
	s.passAll(least, float64(a.Reports()), min(width, wideBytes/a.m.plan.length))
	s.recheck(least)
	out.Least = s.foundDownTo(least, float64(a.Reports()))
	out.List = s.counted(confidence, least)
	return out
}

// passAll runs passes from texts of an eighth of the clients down to those of the fewest. It repeats the last pass as
// long as it lists something.
func (s *search) passAll(least, clients float64, width int) {
	left := mostPasses - lastPasses
	for ref := clients / 8 / s.m.unit(); ref > 1.4*least && left > 0; ref /= 2 {
		s.pass(ref, width/narrowed)
		left--
	}
	for range lastPasses {
		if s.pass(least, width) == 0 {
			break
		}
	}
}

func newSearch(a *aggregate) *search {
	return &search{cellStats: newCellStats(a), known: map[string]bool{}, cache: map[nullKey]float64{}}
}

// least returns how many messages in each of its cells a text needs to be found in 98 of 100 batches.
func (s *search) least() float64 {
	var tables []int
	for table := s.m.plan.levels; table < s.m.plan.tables(); table++ {
		tables = append(tables, table)
	}
	limit, mean := 0.0, 0.0
	ref := 1.0
	for _, table := range tables {
		mean += s.mean[table]
	}
	for range 4 { // The cap of the counts changes with it.
		limit = s.null(tables, ref, true).threshold(chance)
		ref = (limit - mean + sureSigmas*math.Sqrt(limit)) / float64(len(tables))
	}
	return ref
}

// chance is the probability that a proposed text without clients passes.
const chance = falseChance / (mostPasses * wide)

// pass searches for texts with ref messages in each of their cells, and returns how many it lists.
func (s *search) pass(ref float64, width int) (more int) {
	s.renew()
	s.model = newModel(s.list)
	nodes := s.proposed(ref, width)
	if s.dryRun {
		return 0
	}
	for _, c := range s.shortlist(nodes, ref) {
		if s.passes(c, ref, func(tables []int) float64 { return s.limit(tables, ref, true) }) {
			s.list = append(s.list, c)
			s.sizes = append(s.sizes, s.size(s.checks(c)))
			s.known[string(c)] = true
			s.claim(c, 1)
			more++
		}
	}
	return more
}

// proposed returns the texts that the beam leads to, and keeps its trail.
func (s *search) proposed(ref float64, width int) []node {
	nodes, way := s.beam(ref, width)
	if last := len(s.trails) - 1; last >= 0 && s.trails[last].ref == ref {
		s.trails = s.trails[:last]
	}
	s.trails = append(s.trails, way)
	return nodes
}

// shortlist returns the texts of the beam that may pass, ordered by their likelihood from levels and checks together.
func (s *search) shortlist(nodes []node, ref float64) [][]byte {
	type entry struct {
		text  []byte
		score float64
	}
	var entries []entry
	for _, n := range nodes {
		free := s.checks(n.text)
		if s.known[string(n.text)] || !s.enough(free, ref) {
			continue
		}
		score := float64(n.score) / nat
		for _, y := range free {
			mean := s.mean[s.tableOf(y)]
			score += min(float64(s.counts[y])*math.Log1p(ref/mean)-ref, math.Log(float64(s.m.plan.b)))
		}
		entries = append(entries, entry{n.text, score})
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return cmp.Compare(y.score, x.score) })
	out := make([][]byte, len(entries))
	for i, e := range entries {
		out[i] = e.text
	}
	return out
}

// size returns the average excess of messages over the background in some cells.
func (s *search) size(cells []uint64) float64 {
	more, _ := s.excess(cells)
	return max(0, more) / float64(len(cells))
}

// enough reports whether cells have half of the messages of a text with ref in each.
func (s *search) enough(cells []uint64, ref float64) bool {
	return s.capped(cells, ref)-s.meanOf(cells) >= ref*float64(len(cells))/2
}

// own returns the excess of messages over the background in a text's unclaimed cells. A level whose cell has more
// than the checks' cells does not count, because its prefix is shared with other texts.
func (s *search) own(text []byte) float64 {
	checks := s.checks(text)
	own, _ := s.excess(checks)
	size := s.size(checks)
	for level := range s.m.plan.levels {
		y := s.m.plan.of(level, text)
		more := float64(s.counts[y]) - s.mean[level]
		if s.claims[y] == 0 && more <= size+trim*math.Sqrt(size+s.mean[level]) {
			own += more
		}
	}
	return own
}

// needed returns how many messages of its own a text must have. A coalition of fewer clients cannot plant a text.
func (s *search) needed() float64 {
	total := 0.0
	for _, v := range s.variance {
		total += v
	}
	return leastSigmas * math.Sqrt(total)
}

// passes reports whether a text's checks have more messages than chance leaves there, by the limit for the tables of
// its free checks.
func (s *search) passes(c []byte, ref float64, limit func(tables []int) float64) bool {
	free := s.checks(c)
	return len(free) >= min(fewestFree, s.m.plan.checks) && s.enough(free, ref) && s.own(c) >= s.needed() &&
		s.capped(free, ref) >= limit(s.tablesOf(free))
}

// recheck drops listed texts that do not pass if all others are known, or that have too few cells of their own to
// tell. Dropped texts fill cells for the others again, so it repeats until all pass.
func (s *search) recheck(ref float64) {
	for before := -1; before != len(s.list); {
		before = len(s.list)
		s.renew()
		for i := len(s.list) - 1; i >= 0; i-- {
			c := s.list[i]
			limit := s.limitBeside(c, ref)
			s.claim(c, -1)
			if s.passes(c, ref, func([]int) float64 { return limit }) {
				s.claim(c, 1)
				continue
			}
			s.list, s.sizes = slices.Delete(s.list, i, i+1), slices.Delete(s.sizes, i, i+1)
			clear(s.cache)
		}
	}
}

// limitBeside returns the limit of a listed text beside all other listed texts.
func (s *search) limitBeside(c []byte, ref float64) float64 {
	s.claim(c, -1)
	tables := s.tablesOf(s.checks(c))
	s.claim(c, 1)
	return s.limit(tables, ref, false)
}

// renew recomputes the background after the list of known texts changed.
func (s *search) renew() {
	s.refresh()
	clear(s.cache)
}

// nullKey is what a limit depends on, as long as backgrounds and full cells stay.
type nullKey struct {
	tables string
	ref    float64
	alone  bool
}

// limit returns how many messages chance leaves in cells of some tables with a probability of at most chance.
func (s *search) limit(tables []int, ref float64, alone bool) float64 {
	names := make([]byte, len(tables)) // A task has at most 192.
	for i, table := range tables {
		names[i] = byte(table)
	}
	key := nullKey{string(names), ref, alone}
	limit, ok := s.cache[key]
	if !ok {
		limit = s.null(tables, ref, alone).threshold(chance)
		s.cache[key] = limit
	}
	return limit
}

// counted returns the counts of the listed texts.
func (s *search) counted(confidence, ref float64) []protocols.TextCount {
	out := make([]protocols.TextCount, 0, len(s.list))
	for _, l := range s.list {
		limit := s.limitBeside(l, ref)
		s.claim(l, -1)
		free := s.checks(l)
		more, v := s.excess(free)
		limit = max(limit, s.bar(l, free, ref))
		s.claim(l, 1)
		w := s.share(len(free))
		law := cut{seen: more + s.meanOf(free), limit: limit, mean: s.meanOf(free), variance: v, share: w}
		c := protocols.TextCount{Clients: max(0, more/w)}
		c.Text, _ = unpad(l)
		c.Lo, c.Hi = law.interval(confidence)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y protocols.TextCount) int { return cmp.Compare(y.Clients, x.Clients) })
	return out
}

// bar returns the least number of messages in a listed text's free checks, whatever chance leaves there. It is half
// of what the pass searches for; with the given levels, it is also enough for the text to have enough of its own.
func (s *search) bar(text []byte, free []uint64, ref float64) float64 {
	more, _ := s.excess(free)
	levels := s.own(text) - more
	return s.meanOf(free) + max(ref*float64(len(free))/2, s.needed()-levels)
}

// cut describes the messages in some cells of a text that is listed only if they reach limit.
type cut struct{ seen, limit, mean, variance, share float64 }

// interval returns the numbers of clients c under which neither this many messages nor this few have a probability
// below (1 − confidence)/2, given that they reach the limit. With w the share field,
//
//	Pr[N ≥ seen | N ≥ limit],  Pr[N ≤ seen | N ≥ limit],  N normal with mean + c·w and variance + c·w(1−w)
func (l cut) interval(confidence float64) (lo, hi float64) {
	tail := (1 - confidence) / 2
	above := func(c float64) float64 { // Pr[N ≥ seen | N ≥ limit]
		return l.survival(c, l.seen-.5) / l.survival(c, l.limit-.5)
	}
	below := func(c float64) float64 { return 1 - l.survival(c, l.seen+.5)/l.survival(c, l.limit-.5) }
	start := max(0, (l.seen-l.mean)/l.share)
	far := start + 20*(math.Sqrt(l.variance+l.seen)+1)/l.share
	lo = bisect(0, far, func(c float64) bool { return above(c) < tail })
	hi = bisect(0, far, func(c float64) bool { return below(c) > tail })
	return lo, hi
}

// survival returns Pr[N ≥ x] for c clients, kept above 0.
func (l cut) survival(c, x float64) float64 {
	sd := math.Sqrt(l.variance + c*l.share*(1-l.share))
	return max(.5*math.Erfc((x-l.mean-c*l.share)/sd/math.Sqrt2), 1e-300)
}

// bisect returns the point at which a condition that holds from lo on stops holding, and lo if it does not hold
// there.
func bisect(lo, hi float64, holds func(float64) bool) float64 {
	for range 60 {
		if mid := (lo + hi) / 2; holds(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// tablesOf returns the tables of cells.
func (s *search) tablesOf(cells []uint64) []int {
	out := make([]int, len(cells))
	for i, y := range cells {
		out[i] = s.tableOf(y)
	}
	return out
}

// meanOf returns the sum of the backgrounds of cells.
func (s *search) meanOf(cells []uint64) (sum float64) {
	for _, y := range cells {
		sum += s.mean[s.tableOf(y)]
	}
	return sum
}

// capAt returns how many messages of a cell count at most, if a text has ref of its own there. A cell that is full
// because of another text must not carry one.
func (s *cellStats) capAt(table int, ref float64) int { return int(math.Ceil(s.mean[table] + 1.5*ref)) }

// capped returns the messages in some cells, each capped by [cellStats.capAt].
func (s *cellStats) capped(cells []uint64, ref float64) (sum float64) {
	for _, y := range cells {
		sum += min(float64(s.counts[y]), float64(s.capAt(s.tableOf(y), ref)))
	}
	return sum
}
