package strings

// Aggregate makes the unexported type aggregate known to tests.
type Aggregate = aggregate

// Message encodes the number of a cell.
func (m *Mechanism) Message(cell uint64) []byte { return m.message(cell)[0][0] }

// Cell returns the number of the cell of a text in a table.
func (m *Mechanism) Cell(table int, text string) uint64 {
	padded, err := m.plan.pad([]byte(text))
	if err != nil {
		panic(err)
	}
	return m.plan.of(table, padded)
}

// CheckCount returns the estimated number of clients that hold a text, from the text's checks, even if it is not
// listed.
func (a *aggregate) CheckCount(text string) float64 {
	padded, err := a.m.plan.pad([]byte(text))
	if err != nil {
		panic(err)
	}
	s := newCellStats(a)
	return s.count(s.checks(padded))
}

// Tables returns the numbers of levels and checks.
func (m *Mechanism) Tables() (levels, checks int) { return m.plan.levels, m.plan.checks }

// FullShare returns the fraction of a table's cells that count as full in the distribution for a text that nobody
// holds, if the given texts are known.
func (a *aggregate) FullShare(table int, known ...string) float64 {
	s := newCellStats(a)
	for _, text := range known {
		padded, _ := a.m.plan.pad([]byte(text))
		s.claim(padded, 1)
	}
	s.refresh()
	law := s.null([]int{table}, 100, false).p
	return law[len(law)-1]
}

// Spread returns a negative binomial distribution by its mean and variance: the first number that is kept, and the
// probabilities from there on.
func Spread(mean, variance float64) (first int, p []float64) {
	l := spread(mean, variance)
	return l.least, l.p
}

// Threshold returns the number that the sum of several cells reaches with a probability of at most 1e-8, on a grid of
// the given step. Each cell is Poisson with this mean, capped at limit.
func Threshold(mean float64, cells, limit, step int) float64 {
	l := law{step: step, p: []float64{1}}
	for range cells {
		l = l.plus(spread(mean, mean).cell(limit, step, 0))
	}
	return l.threshold(1e-8)
}

// WithSeed returns the mechanism with other hashes, as of a task with another name.
func (m *Mechanism) WithSeed(seed uint64) *Mechanism {
	out := *m
	out.plan.seed = seed
	return &out
}

// Counts returns the numbers of messages of all cells.
func (a *aggregate) Counts() []uint64 { return a.counts }

// Holding says whether the intervals of one batch contain the truth.
type Holding struct {
	Listed map[string]bool // By listed text.
	Asked  map[string]bool // By asked text.
	Rest   bool
}

// HoldAmong returns whether 95 % intervals contain the numbers of clients held. It is fast: it does not compute the
// intervals, and the search considers only the given texts. The rest is only checked if restToo is set. Without asked texts it is about [aggregate.Find], otherwise
// about [aggregate.Ask].
func (a *aggregate) HoldAmong(candidates, asked []string, held map[string]int, restToo bool) (out Holding) {
	s, confidence := a.searchAmong(candidates), .95
	out.Listed, out.Asked = map[string]bool{}, map[string]bool{}
	holds := func(x sample, text string, tail float64) bool {
		if !x.informs(tail) {
			return true
		}
		if held[text] == 0 {
			return x.mayBeAbsent(tail)
		}
		t := x.tails(float64(held[text]))
		return t.above > tail && t.below > tail
	}
	least := s.run(wide)
	if restToo {
		others := int(a.m.task.Batch.Size)
		for _, text := range s.list {
			text, _ := unpad(text)
			others -= held[text]
		}
		rest := s.rest(confidence, least)
		out.Rest = rest.Lo <= float64(others) && float64(others) <= rest.Hi
	}
	if len(asked) > 0 {
		samples, err := s.distinct(asked)
		if err != nil {
			panic(err)
		}
		tail := s.samples(samples, confidence)
		for text, x := range samples {
			text, _ = unpad([]byte(text))
			out.Asked[text] = holds(x, text, tail)
		}
	} else {
		s.tally()
		for _, text := range s.list {
			x, _ := s.listed(text, least)
			text, _ := unpad(text)
			out.Listed[text] = holds(x, text, (1-confidence)/2)
		}
	}
	return out
}

// searchAmong returns a search whose passes consider the given texts.
func (a *aggregate) searchAmong(texts []string) *search {
	s := newSearch(a)
	nodes := make([]node, len(texts))
	for i, text := range texts {
		padded, err := a.m.plan.pad([]byte(text))
		if err != nil {
			panic(err)
		}
		nodes[i] = node{text: padded}
	}
	s.propose = func(float64, int) []node { return nodes }
	return s
}

// Gamma returns γ, or 0 if relays add the noise.
func (m *Mechanism) Gamma() float64 { return m.gamma() }
