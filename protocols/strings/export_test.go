package strings

// Aggregate is aggregate.
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

// CheckCount returns the estimate of a text's clients from its checks, even if the text is not listed.
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

// FullShare returns the share of cells that count as full under the law of a text that nobody holds, in one table
// beside known texts.
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

// Spread returns the negative binomial law of a mean and a variance, from the first number that is not left out.
func Spread(mean, variance float64) (first int, p []float64) {
	l := spread(mean, variance)
	return l.least, l.p
}

// Threshold returns the sum that a number of cells with Poisson laws of the mean, capped at limit, reach with a
// probability of at most 1e-8, on a grid of the given step.
func Threshold(mean float64, cells, limit, step int) float64 {
	l := law{step: step, p: []float64{1}}
	for range cells {
		l = l.plus(spread(mean, mean).cell(limit, step, 0))
	}
	return l.threshold(1e-8)
}
