package strings

import (
	"cmp"
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
)

// The search. Passes look for texts of fewer and fewer clients; what one lists the next ones take as known.
const (
	wide        = 1 << 15 // Prefixes that are kept of a level where texts of the fewest clients are looked for.
	narrowed    = 8       // Times as many as where each has more.
	wideBytes   = 1 << 21 // Of prefixes, so that the time does not grow with texts of more than 64 bytes.
	mostPasses  = 16
	lastPasses  = 6 // Of them, for the fewest clients.
	falseChance = .005
	leastSigmas = 12.5 // Standard deviations of a count over all tables that a text must have of its own.
	sureSigmas  = 2.1  // So far above the threshold a text is found in 98 of 100 batches.
	fewestFree  = 3    // Checks that no listed text has the cell of.
)

// search is the state of a search.
type search struct {
	*scene
	model *model
	list  [][]byte  // Padded.
	sizes []float64 // Messages of each in each of its cells.
	known map[string]bool
	cache map[nullKey]float64 // Limits, as long as backgrounds and full cells stay.
	ways  []*trail            // Of each pass, of those for the fewest clients the last.
	blind bool                // Lists nothing.
}

// Find lists frequent texts. The levels alone propose them, and the checks decide, whose counts had no part in it: a
// text must have so many messages there as one without clients has with a probability of FalseChance for all of all
// passes together. Each listed text claims its cells, and what is there does not count for others.
func (a *aggregate) Find(confidence float64) protocols.FoundTexts {
	return newSearch(a).find(confidence, wide)
}

// find is [aggregate.Find] with so many prefixes at most.
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
	s.secondLook(least)
	out.Least = s.foundDownTo(least, float64(a.Reports()))
	out.List = s.counted(confidence, least)
	return out
}

// passAll goes from texts of an eighth of the clients to those of the fewest, and for these on as long as a pass lists
// something.
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
	return &search{scene: newScene(a), known: map[string]bool{}, cache: map[nullKey]float64{}}
}

// least returns how many messages in each of its cells a text has that is found in 98 of 100 batches.
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
	for range 4 { // Where the counts are capped goes with it.
		limit = s.null(tables, ref, true).threshold(chance)
		ref = (limit - mean + sureSigmas*math.Sqrt(limit)) / float64(len(tables))
	}
	return ref
}

// chance is that of each text that a pass proposes.
const chance = falseChance / (mostPasses * wide)

// pass looks for texts that have so many messages in each of their cells, and returns how many it lists.
func (s *search) pass(ref float64, width int) (more int) {
	s.renew()
	s.model = newModel(s.list)
	nodes := s.proposed(ref, width)
	if s.blind {
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

// proposed returns what the beam leads to, and keeps its trail.
func (s *search) proposed(ref float64, width int) []node {
	nodes, way := s.beam(ref, width)
	if last := len(s.ways) - 1; last >= 0 && s.ways[last].ref == ref {
		s.ways = s.ways[:last]
	}
	s.ways = append(s.ways, way)
	return nodes
}

// shortlist returns those of the beam that may pass, the likeliest by levels and checks together first.
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

// size returns by how much each of some cells has more messages than the background, on average.
func (s *search) size(cells []uint64) float64 {
	more, _ := s.excess(cells)
	return max(0, more) / float64(len(cells))
}

// enough says whether cells have half of what a text has there that has ref in each.
func (s *search) enough(cells []uint64, ref float64) bool {
	return s.capped(cells, ref)-s.meanOf(cells) >= ref*float64(len(cells))/2
}

// own returns by how much the messages in a text's unclaimed cells are more than the background. A level whose cell has
// more than the checks' would be that of a prefix that others share, and does not count.
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

// needed returns how many messages of its own a text must have: clients who agree, fewer than this, plant none.
func (s *search) needed() float64 {
	total := 0.0
	for _, v := range s.variance {
		total += v
	}
	return leastSigmas * math.Sqrt(total)
}

// passes says whether a text's checks have more messages than chance leaves there: so many as a limit says for the
// tables of its free ones.
func (s *search) passes(c []byte, ref float64, limit func(tables []int) float64) bool {
	free := s.checks(c)
	return len(free) >= min(fewestFree, s.m.plan.checks) && s.enough(free, ref) && s.own(c) >= s.needed() &&
		s.capped(free, ref) >= limit(s.tablesOf(free))
}

// secondLook takes from the list those that do not pass if all others are known, and those that have too few cells of
// their own to tell. What the list no longer knows fills cells for the others, so it looks until all pass.
func (s *search) secondLook(ref float64) {
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

// limitBeside returns the limit of a listed text, beside all others that are listed.
func (s *search) limitBeside(c []byte, ref float64) float64 {
	s.claim(c, -1)
	tables := s.tablesOf(s.checks(c))
	s.claim(c, 1)
	return s.limit(tables, ref, false)
}

// renew takes the background again, now that other texts are known.
func (s *search) renew() {
	s.refresh()
	clear(s.cache)
}

// nullKey is what a limit depends on while backgrounds and full cells stay.
type nullKey struct {
	tables string
	ref    float64
	alone  bool
}

// limit returns how many messages chance leaves in cells of some tables with a probability of chance at most.
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

// counted returns the counts of the list.
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

// bar returns how many messages a text's free checks have at least where it is listed, whatever chance leaves there:
// half of what is looked for, and with the levels as they are so many that it has enough of its own.
func (s *search) bar(text []byte, free []uint64, ref float64) float64 {
	more, _ := s.excess(free)
	levels := s.own(text) - more
	return s.meanOf(free) + max(ref*float64(len(free))/2, s.needed()-levels)
}

// cut is what messages in some cells tell of a text's clients, if it is listed only where they are limit at least.
type cut struct{ seen, limit, mean, variance, share float64 }

// interval returns the numbers of clients c under which neither so many messages nor so few have a probability below
// (1 − confidence)/2, given that they reach the limit:
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

// survival returns Pr[N ≥ x] of c clients, and never 0.
func (l cut) survival(c, x float64) float64 {
	sd := math.Sqrt(l.variance + c*l.share*(1-l.share))
	return max(.5*math.Erfc((x-l.mean-c*l.share)/sd/math.Sqrt2), 1e-300)
}

// bisect returns where something that holds from lo on ends to hold, and lo if it does not hold there.
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

// meanOf returns the background of cells together.
func (s *search) meanOf(cells []uint64) (sum float64) {
	for _, y := range cells {
		sum += s.mean[s.tableOf(y)]
	}
	return sum
}

// capAt returns how many messages of a cell count at most, where a text has ref of its own there: a cell that is full
// for the sake of another text must not carry one.
func (s *scene) capAt(table int, ref float64) int { return int(math.Ceil(s.mean[table] + 1.5*ref)) }

// capped returns the messages in some cells, of each at most as many as [scene.capAt] allows.
func (s *scene) capped(cells []uint64, ref float64) (sum float64) {
	for _, y := range cells {
		sum += min(float64(s.counts[y]), float64(s.capAt(s.tableOf(y), ref)))
	}
	return sum
}
