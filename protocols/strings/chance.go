package strings

// This file computes how many messages chance alone leaves in a text's cells, and how many clients a text needs to
// stand out from chance.

import "math"

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

// quantile returns the least number of messages, on the grid, that is exceeded with a probability of at most 1 − u.
func (l law) quantile(u float64) uint64 {
	for k, p := range l.p {
		if u -= p; u <= 0 {
			return uint64(l.least + k*l.step)
		}
	}
	return uint64(l.least + (len(l.p)-1)*l.step)
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
		law := spread(clients*own, clients*own)
		listed := 0
		for _, p := range planted {
			if s.lists(p, law, least) {
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
func (s *search) lists(p probe, law law, least float64) bool {
	for table, y := range p.cells {
		own := law.quantile(p.draws[table])
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
	law, random := spread(mean, mean), m.plan.seed
	for y := range a.counts {
		a.counts[y] = law.quantile(uniform(&random))
	}
	own, _ := m.shares()
	law = spread(clients*own, clients*own)
	for _, p := range m.plan.probes(int(texts), mix(random)) {
		for table, y := range p.cells {
			a.counts[y] += law.quantile(p.draws[table])
		}
	}
	return a
}
