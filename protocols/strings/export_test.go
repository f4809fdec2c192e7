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

// ProposedFrom returns how many clients a text needs for the levels to propose it, if this many relays add dummies.
func (m *Mechanism) ProposedFrom(relays int) float64 { return m.proposedFrom(relays) }

// CheckCount returns the estimated number of clients that hold a text, from the text's checks, even if it is not
// listed.
func (a *aggregate) CheckCount(text string) float64 {
	padded, err := a.m.plan.pad([]byte(text))
	if err != nil {
		panic(err)
	}
	s := newCellStats(a)
	checks := s.checks(padded)
	return s.excess(checks) / (float64(len(checks)) / a.m.unit())
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

// Gamma returns γ, or 0 if relays add the noise.
func (m *Mechanism) Gamma() float64 { return m.gamma() }
