package strings

import (
	"cmp"
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// The search. Each pass searches for texts with fewer clients than the previous pass did. Later passes treat texts that
// a pass lists as known.
const (
	wide        = 1 << 15 // Prefixes that each level keeps, in the passes for the texts with the fewest clients.
	narrowed    = 8       // The other passes keep wide/narrowed prefixes.
	wideBytes   = 1 << 21 // Most bytes of kept prefixes. So texts above 64 bytes take no more time.
	mostPasses  = 16
	lastPasses  = 6 // Most passes for the texts with the fewest clients.
	falseChance = .005
	leastSigmas = 12.5 // Messages a text needs of its own, in standard deviations of a count over all tables.
	sureSigmas  = 2.1  // A text this many standard deviations above the threshold is listed in 98 of 100 batches.
	fewestFree  = 3    // A listed text needs this many checks whose cell no other listed text has.
)

// search is the state of a search.
type search struct {
	*cellStats
	model  *model
	list   [][]byte  // Padded texts.
	sizes  []float64 // Estimated messages of each listed text per cell.
	known  map[string]bool
	cache  map[nullKey]float64 // Results of limit. Cleared when the background or the full cells change.
	trails []*trail            // One trail per pass. Of the last, repeated passes, only the latest is kept.
	dryRun bool                // If set, the search lists no texts; it only finds how many clients one needs.
	// propose returns the texts that a pass considers. Tests replace it, to save the time of the beam search.
	propose func(ref float64, width int) []node
}

// Find lists frequent texts. The levels alone propose texts, and the checks decide. The checks' counts play no part in
// the proposals. So the probability that all passes together list a text without clients is at most FalseChance. Each
// listed text claims its cells: their messages do not count for other texts.
func (a *aggregate) Find(confidence float64) protocols.FoundTexts {
	return newSearch(a).find(confidence, wide)
}

// find does the work of [aggregate.Find], and keeps at most width prefixes per level.
func (s *search) find(confidence float64, width int) protocols.FoundTexts {
	a := s.aggregate
	out := protocols.FoundTexts{FalseChance: falseChance}
	if a.messages() == 0 {
		return out
	}
	need := s.needed()
	out.Threshold = need
	if a.draws > 0 {
		relays := max(1, uint64(a.m.task.VerifierHop()))
		out.PlantedByRelay = uint64(a.added() / float64(relays) / need)
	}
	least := s.run(width)
	if len(s.trails) > 0 {
		out.Least = s.foundDownTo(least, float64(a.Reports()))
	}
	out.List = s.counted(confidence, least)
	out.Rest = s.rest(confidence, least)
	return out
}

// run lists the frequent texts, and keeps at most width prefixes per level. It returns how many messages of its own a
// text needs in each cell to be found.
func (s *search) run(width int) (least float64) {
	if s.messages() == 0 {
		return 0
	}
	least = s.least()
	s.passAll(least, float64(s.Reports()), min(width, wideBytes/s.m.plan.length))
	s.recheck(least)
	return least
}

// passAll runs passes, first for texts of an eighth of the clients, then for texts of ever fewer clients. It repeats
// the last pass, for the fewest, as long as it lists something.
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
	s := &search{cellStats: newCellStats(a), known: map[string]bool{}, cache: map[nullKey]float64{}}
	s.propose = s.proposed
	return s
}

// least returns how many messages of its own a text needs in each cell to be found in 98 of 100 batches.
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
	for range 4 { // Iterate, because the cap of a cell's count depends on ref.
		limit = s.null(tables, ref, true).threshold(chance)
		ref = (limit - mean + sureSigmas*math.Sqrt(limit)) / float64(len(tables))
	}
	return ref
}

// chance is the largest probability with which a proposed text without clients may pass the checks.
const chance = falseChance / (mostPasses * wide)

// pass searches for texts with ref messages of their own in each of their cells. It returns how many texts it lists.
func (s *search) pass(ref float64, width int) (more int) {
	s.renew()
	s.model = newModel(s.list)
	nodes := s.propose(ref, width)
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

// proposed returns the texts that the beam search finds, and keeps the search's trail.
func (s *search) proposed(ref float64, width int) []node {
	nodes, way := s.beam(ref, width)
	if last := len(s.trails) - 1; last >= 0 && s.trails[last].ref == ref {
		s.trails = s.trails[:last]
	}
	s.trails = append(s.trails, way)
	return nodes
}

// shortlist returns the proposed texts that may pass the checks, the likeliest first, by levels and checks together.
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

// size returns the average excess of messages over the background in some cells, at least 0.
func (s *search) size(cells []uint64) float64 {
	more, _ := s.excess(cells)
	return max(0, more) / float64(len(cells))
}

// enough reports whether the cells' excess over the background is at least half of what a text with ref messages in
// each of them has.
func (s *search) enough(cells []uint64, ref float64) bool {
	return s.capped(cells, ref)-s.meanOf(cells) >= ref*float64(len(cells))/2
}

// own returns the excess of messages over the background in a text's unclaimed cells. If a level's cell has clearly
// more messages than the check cells, other texts share the prefix, and the level does not count.
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

// needed returns how many messages of its own a text must have to be listed. A coalition of fewer clients cannot plant
// a text.
func (s *search) needed() float64 {
	total := 0.0
	for _, v := range s.variance {
		total += v
	}
	return leastSigmas * math.Sqrt(total)
}

// passes reports whether a text is to be listed. Its unclaimed checks must have at least as many messages as limit
// returns for their tables, more than chance leaves there. There must be enough such checks, and the text must have
// enough messages of its own.
func (s *search) passes(c []byte, ref float64, limit func(tables []int) float64) bool {
	free := s.checks(c)
	return len(free) >= min(fewestFree, s.m.plan.checks) && s.enough(free, ref) && s.own(c) >= s.needed() &&
		s.capped(free, ref) >= limit(s.tablesOf(free))
}

// recheck drops listed texts that do not pass once all other listed texts are known. It also drops those with too few
// unclaimed checks to tell. When it drops a text, cells of other listed texts change. So it repeats until all pass.
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
			delete(s.known, string(c))
			s.list, s.sizes = slices.Delete(s.list, i, i+1), slices.Delete(s.sizes, i, i+1)
			clear(s.cache)
		}
	}
}

// limitBeside returns the limit for a listed text, with the cells of all other listed texts claimed.
func (s *search) limitBeside(c []byte, ref float64) float64 {
	s.claim(c, -1)
	tables := s.tablesOf(s.checks(c))
	s.claim(c, 1)
	return s.limit(tables, ref, false)
}

// renew recomputes the background after the list of known texts has changed.
func (s *search) renew() {
	s.refresh()
	clear(s.cache)
}

// nullKey is the key of a cached limit: what the limit depends on besides the background and the full cells.
type nullKey struct {
	tables string
	ref    float64
	alone  bool
}

// limit returns the number of messages that chance alone reaches, in cells of some tables, with a probability of at
// most the constant chance. alone is as in [cellStats.null].
func (s *search) limit(tables []int, ref float64, alone bool) float64 {
	names := make([]byte, len(tables)) // A task has at most 192 tables.
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

// counted returns the estimated counts of the listed texts, with their intervals.
func (s *search) counted(confidence, ref float64) []protocols.TextCount {
	s.tally()
	out := make([]protocols.TextCount, 0, len(s.list))
	for _, l := range s.list {
		c := countFrom(s.listed(l, ref), (1-confidence)/2)
		c.Text, _ = unpad(l)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y protocols.TextCount) int { return cmp.Compare(y.Clients, x.Clients) })
	return out
}

// listed returns what the checks say about a listed text.
func (s *search) listed(text []byte, ref float64) (x sample) {
	limit := s.limitBeside(text, ref)
	x = s.sampleOf(text, s.m.plan.levels, true)
	s.claim(text, -1)
	defer s.claim(text, 1)
	cells := s.checks(text)
	for _, y := range cells {
		x.caps = append(x.caps, s.capAt(s.tableOf(y), ref))
	}
	x.bar = int(math.Ceil(max(limit, s.bar(text, cells, ref))))
	return x
}

// bar returns the least number of messages in a listed text's unclaimed checks, apart from the limit of chance: half of
// what the pass searches for, or what the text needs beside its levels to have enough of its own.
func (s *search) bar(text []byte, free []uint64, ref float64) float64 {
	more, _ := s.excess(free)
	levels := s.own(text) - more
	return s.meanOf(free) + max(ref*float64(len(free))/2, s.needed()-levels)
}

// tablesOf returns the table of each cell.
func (s *search) tablesOf(cells []uint64) []int {
	out := make([]int, len(cells))
	for i, y := range cells {
		out[i] = s.tableOf(y)
	}
	return out
}

// meanOf returns the sum of the background means of some cells.
func (s *search) meanOf(cells []uint64) (sum float64) {
	for _, y := range cells {
		sum += s.mean[s.tableOf(y)]
	}
	return sum
}

// capAt returns how many messages of a cell count at most, in a search for texts with ref messages of their own per
// cell. The cap prevents a cell that is full because of another text from making this text pass.
func (s *cellStats) capAt(table int, ref float64) int { return int(math.Ceil(s.mean[table] + 1.5*ref)) }

// capped returns the messages in some cells, each capped by [cellStats.capAt].
func (s *cellStats) capped(cells []uint64, ref float64) (sum float64) {
	for _, y := range cells {
		sum += min(float64(s.counts[y]), float64(s.capAt(s.tableOf(y), ref)))
	}
	return sum
}
