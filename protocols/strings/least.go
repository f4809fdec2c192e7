package strings

import "math"

// trail is what one beam kept: a text comes through it if it scores more than the floor of each step.
type trail struct {
	ref   float64
	model *model
	steps []passed
}

// passed is a step of a beam with what scores too little there.
type passed struct {
	step
	floor int32
}

// probe is a text that nobody has, planted to see whether the search would list it.
type probe struct {
	text  []byte
	cells []uint64  // By table.
	draws []float64 // By table, in (0, 1): which quantile of a text's messages it has there.
}

const (
	probes    = 300
	sureShare = .98 // Of probes, that are listed.
)

// foundDownTo returns how many clients a text must have to be listed in 98 of 100 batches like this one, up to most, 0
// if no number is enough. Texts of common characters, as long as can be, are planted in the counts as they are: each is
// listed whose prefixes score more than what one of the beams left out, and which passes the checks. What other texts
// begin alike, and what they have in the same cells, so counts against it. The planted texts do not change what is
// taken for background, and begin like no others.
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

// probes returns texts to plant, always the same of a task and a random number.
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

// uniform returns the next number of a sequence as one in (0, 1).
func uniform(state *uint64) float64 { return (float64(next(state)>>11) + .5) / (1 << 53) }

// next returns the next number of a sequence that is always the same: that of [mix].
func next(state *uint64) uint64 {
	*state += golden
	return mix(*state)
}

// lists says whether a planted text is listed, with messages of its own in each cell of the given law.
func (s *search) lists(p probe, law law, least float64) bool {
	for table, y := range p.cells {
		own := law.quantile(p.draws[table])
		s.counts[y] += own
		defer func() { s.counts[y] -= own }()
	}
	for _, way := range s.ways {
		if way.leadsTo(p, s.scene) && s.passes(p.text, way.ref, func(tables []int) float64 {
			return s.limit(tables, way.ref, true)
		}) {
			beside := func(tables []int) float64 { return s.limit(tables, least, false) }
			return s.blind || s.passes(p.text, least, beside)
		}
	}
	return false
}

// leadsTo says whether the prefixes of a planted text score enough at each step.
func (t *trail) leadsTo(p probe, s *scene) bool {
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

// FoundDownTo returns how many clients a text must have to be listed in about 98 of 100 full batches of which so many
// relays add their dummies, 0 if no number is enough: what [Found.Least] says of a batch where up to ten texts have so
// many clients and all others have texts of their own, which do not begin alike. Where they do, a text needs more.
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
	cellsEach  = 25 // Of a table for each planted text, at least.
	mostRounds = 8  // How often texts are planted that have as many clients as were needed before.
	frequent   = 10 // How many at most.
)

// fewCells is how many cells of a table are so few that a text's own changes the background.
const fewCells = 100

// leastBeside returns how many clients a text must have beside ten others of so many clients, which are listed if they
// can be; and in small tables, where one of so many clients is part of what the background is taken from, as it is
// before it is listed. It is 0 if no number is enough. Half of the clients have the ten at most, and there are fewer
// where they would fill a table. For the time, the searches keep fewer prefixes than others.
func (m *Mechanism) leastBeside(clients float64, relays int) float64 {
	size := float64(m.task.Batch.Size)
	texts := math.Floor(min(frequent, size/2/max(1, clients), float64(m.plan.b)/cellsEach))
	least := newSearch(m.expected(clients, texts, relays)).find(.95, wide/narrowed).Least
	if m.plan.b >= fewCells || clients == 0 || least == 0 {
		return least
	}
	s := newSearch(m.expected(clients, 1, relays))
	s.blind = true
	alone := s.find(.95, wide/narrowed).Least
	if alone == 0 {
		return 0
	}
	return max(alone, least)
}

// expected returns a full batch: dummies and the messages of clients whose texts are alone fall in any cell, and those
// of the others in the cells of some texts of so many clients each.
func (m *Mechanism) expected(clients, texts float64, relays int) *Aggregate {
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
