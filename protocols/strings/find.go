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
		limit = s.null(tables, ref, true).threshold(s.m.plan.chance())
		ref = (limit - mean + sureSigmas*math.Sqrt(limit)) / float64(len(tables))
	}
	return ref
}

// chance is the largest probability with which a proposed text without clients may pass the checks. A pass proposes at
// most wide texts, and there are 256 of one byte.
func (p plan) chance() float64 {
	return falseChance / mostPasses / min(wide, math.Exp2(8*float64(p.length)))
}

// pass searches for texts with ref messages of their own in each of their cells. It returns how many texts it lists.
func (s *search) pass(ref float64, width int) (more int) {
	s.renew()
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
	return max(0, s.excess(cells)) / float64(len(cells))
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
	own := s.excess(checks)
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
// most [plan.chance]. alone is as in [cellStats.null].
func (s *search) limit(tables []int, ref float64, alone bool) float64 {
	names := make([]byte, len(tables)) // A task has at most 192 tables.
	for i, table := range tables {
		names[i] = byte(table)
	}
	key := nullKey{string(names), ref, alone}
	limit, ok := s.cache[key]
	if !ok {
		limit = s.null(tables, ref, alone).threshold(s.m.plan.chance())
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
	bar, need := s.bars(text, cells, ref)
	x.listing = &listing{bar: int(math.Ceil(max(limit, bar))), need: int(math.Ceil(need))}
	for _, y := range cells {
		x.listing.caps = append(x.listing.caps, s.capAt(s.tableOf(y), ref))
	}
	x.freeze()
	return x
}

// bars returns the least numbers of messages in a listed text's unclaimed checks, apart from the limit of chance: half
// of what the pass searches for, of capped cells, and what the text needs beside its levels to have enough of its own.
func (s *search) bars(text []byte, free []uint64, ref float64) (bar, need float64) {
	levels := s.own(text) - s.excess(free)
	return s.meanOf(free) + ref*float64(len(free))/2, s.meanOf(free) + s.needed() - levels
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

// What follows computes how many messages chance alone leaves in a text's cells, and how many clients a text needs to
// stand out from chance.

// law is the probability distribution of a number of messages on a grid: p[i] is the probability of least + i·step.
type law struct {
	least, step int
	p           []float64
}

// mostSteps is the largest number of grid steps for one cell. If a cell has more messages, steps are larger than 1.
const mostSteps = 1 << 10

// null returns the distribution of [cellStats.capped] for a text that nobody holds. In each table the text's cell is
// one of the unclaimed cells, drawn uniformly. Some of these cells are full: those with more messages than the
// background, and one more in each table, as if the text's own cell were full. If alone is true, no cell is full. The
// messages of the other cells are negative binomial, or Poisson, with the background's mean and variance. On a grid
// each cell's messages are rounded up, so that limits err on the high side.
func (s *cellStats) null(tables []int, ref float64, alone bool) law {
	spreads, step := make([]law, len(tables)), 1
	for i, table := range tables {
		spreads[i] = spread(s.mean[table], s.variance[table])
		step = max(step, (s.capAt(table, ref)-spreads[i].least+mostSteps-1)/mostSteps)
	}
	sum := law{step: step, p: []float64{1}}
	for i, table := range tables {
		full := 0.0
		if !alone {
			full = float64(s.full[table]+1) / float64(s.free[table]+1)
		}
		sum = sum.plus(spreads[i].cell(s.capAt(table, ref), step, min(full, 1)))
	}
	return sum
}

// cell returns the distribution of the messages in a uniform cell of a table, capped at limit, on a grid. full is the
// fraction of full cells, which count as limit.
func (l law) cell(limit, step int, full float64) law {
	last := (limit - l.least + step - 1) / step
	p := make([]float64, last+1)
	for i, q := range l.p {
		p[min((i+step-1)/step, last)] += q * (1 - full)
	}
	p[last] += full
	return law{l.least, step, p}
}

// unlikely is the probability, relative to the mode's, below which spread drops numbers.
const unlikely = 1e-25

// spread returns a negative binomial distribution, or a Poisson distribution if the variance is at most the mean. It
// proceeds up and down from the mean, so that nothing underflows, whatever the mean is.
func spread(mean, variance float64) law {
	ratio := func(k float64) float64 { return mean / (k + 1) } // Pr[k+1] / Pr[k]
	if over := variance - mean; over > 1e-6*mean {
		r, q := mean*mean/over, over/variance
		ratio = func(k float64) float64 { return q * (r + k) / (k + 1) }
	}
	middle := int(mean)
	var down []float64 // From the middle down.
	for k, p := middle, 1.0; k >= 0 && p > unlikely; k-- {
		down = append(down, p)
		p /= ratio(float64(k - 1))
	}
	out := law{least: middle - len(down) + 1, step: 1}
	for i := range down {
		out.p = append(out.p, down[len(down)-1-i])
	}
	for k, p := middle, ratio(float64(middle)); p > unlikely; k++ {
		out.p = append(out.p, p)
		p *= ratio(float64(k + 1))
	}
	total := 0.0
	for _, p := range out.p {
		total += p
	}
	for i := range out.p {
		out.p[i] /= total
	}
	return out
}

// plus returns the distribution of the sum of two independent numbers on grids of the same step.
func (l law) plus(o law) law {
	sum := law{l.least + o.least, l.step, make([]float64, len(l.p)+len(o.p)-1)}
	for i, p := range l.p {
		if p == 0 {
			continue
		}
		for j, q := range o.p {
			sum.p[i+j] += p * q
		}
	}
	return sum
}

// threshold returns the least number on the grid that is reached or exceeded with a probability of at most p. It
// returns one step beyond the support if there is no such number.
func (l law) threshold(p float64) float64 {
	tail := 0.0
	for k := len(l.p) - 1; k >= 0; k-- {
		if tail += l.p[k]; tail > p {
			return float64(l.least + (k+1)*l.step)
		}
	}
	return float64(l.least)
}

// quantiles returns the function of u that gives the least number of messages, on the grid, that is exceeded with a
// probability of at most 1 − u.
func (l law) quantiles() func(u float64) uint64 {
	sums, sum := make([]float64, len(l.p)), 0.0
	for k, p := range l.p {
		sum += p
		sums[k] = sum
	}
	return func(u float64) uint64 {
		k, _ := slices.BinarySearch(sums, u)
		return uint64(l.least + min(k, len(l.p)-1)*l.step)
	}
}

// trail records which scores one beam search kept: a text passes if its score exceeds the floor of each step.
type trail struct {
	ref   float64
	model *model
	steps []beamStep
}

// beamStep is a step of a beam search, with the floor of that step.
type beamStep struct {
	step
	floor int32
}

// probe is a text that nobody holds. The search plants it, with messages, to see whether it would be listed.
type probe struct {
	text  []byte
	cells []uint64  // By table: the text's cell.
	draws []float64 // By table, in (0, 1): the quantile of the text's messages in the table.
}

const (
	probes    = 300
	sureShare = .98 // Fraction of the probes that must be listed.
)

// foundDownTo returns how many clients, up to most, must hold a text for it to be listed in 98 of 100 batches like this
// one; 0 if no number is enough. It plants texts of common characters, as long as possible, in the actual counts. A
// planted text is listed if its prefixes score more than what one of the beam searches dropped, and if it passes the
// checks. So the result includes the effect of other texts that begin alike or share cells. Planted texts do not change
// the background, and do not begin alike.
func (s *search) foundDownTo(least, most float64) float64 {
	s.renew()
	planted := s.m.plan.probes(probes, s.m.plan.seed)
	sure := func(clients float64) bool {
		own, _ := s.m.shares()
		quantile := spread(clients*own, clients*own).quantiles()
		listed := 0
		for _, p := range planted {
			if s.lists(p, quantile, least) {
				listed++
			}
		}
		return float64(listed) >= sureShare*probes
	}
	if !sure(most) {
		return 0
	}
	lo, hi := 0.0, most
	for hi-lo > max(1, .01*hi) {
		if mid := (lo + hi) / 2; sure(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// probes returns n texts to plant. They are always the same for a task and a start value random.
func (p plan) probes(n int, random uint64) []probe {
	var letters []byte
	for c := range byte(0x7f) {
		if common(c) {
			letters = append(letters, c)
		}
	}
	out := make([]probe, n)
	for i := range out {
		text := make([]byte, p.length)
		for at := range text {
			text[at] = letters[next(&random)%uint64(len(letters))]
		}
		out[i].text = text
		for table := range p.tables() {
			out[i].cells = append(out[i].cells, p.of(table, text))
			out[i].draws = append(out[i].draws, uniform(&random))
		}
	}
	return out
}

// uniform returns the next number of a deterministic sequence, in (0, 1).
func uniform(state *uint64) float64 { return (float64(next(state)>>11) + .5) / (1 << 53) }

// next returns the next number of a deterministic sequence, by [mix].
func next(state *uint64) uint64 {
	*state += golden
	return mix(*state)
}

// lists reports whether the search lists a planted text, if the text's own messages in each cell follow the given
// distribution.
func (s *search) lists(p probe, quantile func(u float64) uint64, least float64) bool {
	for table, y := range p.cells {
		own := quantile(p.draws[table])
		s.counts[y] += own
		defer func() { s.counts[y] -= own }()
	}
	for _, way := range s.trails {
		if way.leadsTo(p, s.cellStats) && s.passes(p.text, way.ref, func(tables []int) float64 {
			return s.limit(tables, way.ref, true)
		}) {
			beside := func(tables []int) float64 { return s.limit(tables, least, false) }
			return s.dryRun || s.passes(p.text, least, beside)
		}
	}
	return false
}

// leadsTo reports whether the prefixes of a planted text score enough to be kept at each step.
func (t *trail) leadsTo(p probe, s *cellStats) bool {
	score, mode := int32(0), uint8(0)
	for _, st := range t.steps {
		have, c := st.at%8, p.text[st.at/8]
		before, after := c>>(8-have), c>>(8-have-st.bits)
		score += t.model.prefix[mode][have+st.bits][after] - t.model.prefix[mode][have][before]
		if y := p.cells[st.level]; st.known != nil {
			score += st.of(y, s.counts[y])
		}
		if score <= st.floor {
			return false
		}
		if have+st.bits == 8 {
			mode, _ = follow(mode, c)
		}
	}
	return true
}

// FoundDownTo returns how many clients must hold a text for it to be listed in about 98 of 100 full batches, if this
// many relays add dummies; 0 if no number is enough. It predicts [protocols.FoundTexts.Least] for a batch in which up
// to ten texts have that many clients each. All other clients have texts of their own that do not begin alike. If texts
// begin alike, a text needs more clients.
func (m *Mechanism) FoundDownTo(relays int) float64 {
	clients := 0.0
	for range mostRounds {
		switch least := m.leastBeside(clients, relays); {
		case least == 0:
			return 0
		case least <= 1.03*clients:
			return clients
		default:
			clients = max(least, 1.1*clients)
		}
	}
	return clients
}

const (
	cellsEach  = 25 // Least number of a table's cells per planted text.
	mostRounds = 8  // Most rounds. Each plants texts with as many clients as the previous round needed.
	frequent   = 10 // Largest number of texts that a round plants.
)

// fewCells is the number of a table's cells below which one frequent text changes the background.
const fewCells = 100

// leastBeside returns how many clients a text must have to be listed beside ten other texts with the given number of
// clients each; 0 if no number is enough. The ten texts together have at most half of the clients, and there are fewer
// of them if they would fill a table. They are listed if they can be. In small tables, it also plants one such text
// that is not listed yet, and so is part of the background. To save time, the searches keep fewer prefixes than a real
// search.
func (m *Mechanism) leastBeside(clients float64, relays int) float64 {
	size := float64(m.task.Batch.Size)
	texts := math.Floor(min(frequent, size/2/max(1, clients), float64(m.plan.b)/cellsEach))
	least := newSearch(m.expected(clients, texts, relays)).find(.95, wide/narrowed).Least
	if m.plan.b >= fewCells || clients == 0 || least == 0 {
		return least
	}
	s := newSearch(m.expected(clients, 1, relays))
	s.dryRun = true
	alone := s.find(.95, wide/narrowed).Least
	if alone == 0 {
		return 0
	}
	return max(alone, least)
}

// expected returns the expected aggregate of a full batch. This many texts have the given number of clients each, and
// their messages fall in these texts' cells. All other clients have texts that nobody shares. Their messages, and
// dummies, fall uniformly in all cells.
func (m *Mechanism) expected(clients, texts float64, relays int) *aggregate {
	a := m.newAggregate()
	others := float64(m.task.Batch.Size)
	others = max(0, others-texts*clients)
	if m.task.Noise != nil {
		a.AddDummies(uint64(relays), uint64(relays)*m.task.Noise.Pool)
		others += a.added()
	}
	mean := others / float64(len(a.counts))
	quantile, random := spread(mean, mean).quantiles(), m.plan.seed
	for y := range a.counts {
		a.counts[y] = quantile(uniform(&random))
	}
	own, _ := m.shares()
	quantile = spread(clients*own, clients*own).quantiles()
	for _, p := range m.plan.probes(int(texts), mix(random)) {
		for table, y := range p.cells {
			a.counts[y] += quantile(p.draws[table])
		}
	}
	return a
}
