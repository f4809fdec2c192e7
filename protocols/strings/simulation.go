package strings

import (
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// attack implements [protocols.Capabilities.Attack]. With max or one-coordinate, a client sends its text's cell in the
// last check table, which moves that cell's estimate by T/(1−γ). With drop-noise, it sends the cell of its text in a
// random table without randomization.
func (m *Mechanism) attack(src *randomizer.Source, attack string, _ int, value []float64) (protocols.Messages, error) {
	text, err := m.text(value)
	if err != nil {
		return nil, err
	}
	table := m.plan.tables() - 1
	switch attack {
	case protocols.AttackMax, protocols.AttackOneCoordinate:
	case protocols.AttackDropNoise:
		table = int(src.Below(uint64(m.plan.tables())))
	default:
		return nil, protocols.UnknownAttack(attack, "max, one-coordinate or drop-noise")
	}
	return m.message(m.plan.of(table, text)), nil
}

// fast implements [protocols.Capabilities.Fast]. It draws the table of each client, but encodes no message. It draws no
// dummies.
func (m *Mechanism) fast(values [][]float64) (protocols.Draw, error) {
	cells, held := map[string]int{}, []uint64{}
	var texts [][]byte
	for _, value := range values {
		text, err := m.text(value)
		if err != nil {
			return nil, err
		}
		at, ok := cells[string(text)]
		if !ok {
			at = len(texts)
			cells[string(text)], texts, held = at, append(texts, text), append(held, 0)
		}
		held[at]++
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		a := m.newAggregate()
		for i, text := range texts {
			for range held[i] {
				a.counts[m.randomize(src, int(src.Below(uint64(m.plan.tables()))), text)]++
			}
		}
		return a, protocols.FixedCount(uint64(len(values)))
	}, nil
}

// hold implements [protocols.Capabilities.Hold].
func (m *Mechanism) hold(relays int) func(a protocols.Aggregate, held map[string]int, asks []string, confidence float64,
	printed bool) (listed, asked map[string]bool, none int, off float64) {
	from := m.proposedFrom(relays)
	return func(a protocols.Aggregate, held map[string]int, asks []string, confidence float64, printed bool) (listed,
		asked map[string]bool, none int, off float64) {
		return a.(*aggregate).Hold(from, held, asks, confidence, printed)
	}
}

// proposedFrom returns how many clients a text needs for the levels to propose it, if this many relays add dummies. Of
// texts of up to shortText bytes that pass the checks, the levels lose about one in a hundred, so it returns 0. Longer
// texts need more clients for the levels than for the checks.
func (m *Mechanism) proposedFrom(relays int) float64 {
	if m.plan.length <= shortText {
		return 0
	}
	return m.FoundDownTo(relays)
}

// Hold does the work of [Mechanism.hold]. In place of the beam search, it proposes the texts that at least this many
// clients hold. Texts that are not valid are not allowed.
func (a *aggregate) Hold(from float64, held map[string]int, asks []string, confidence float64, printed bool) (listed,
	asked map[string]bool, none int, off float64) {
	s := newSearch(a)
	nodes := make([]node, 0, len(held))
	for text, clients := range held {
		if float64(clients) >= from {
			padded, _ := s.m.plan.pad([]byte(text))
			nodes = append(nodes, node{text: padded})
		}
	}
	slices.SortFunc(nodes, func(x, y node) int { return slices.Compare(x.text, y.text) })
	s.propose = func(float64, int) []node { return nodes }
	least := s.run(wide)
	others := int(s.m.task.Batch.Size)
	for _, text := range s.list {
		text, _ := unpad(text)
		others -= held[text]
	}
	r := s.rest(confidence, least)
	off = max(0, r.Lo-float64(others), float64(others)-r.Hi)
	listed, asked = map[string]bool{}, map[string]bool{}
	check := func(into map[string]bool, padded []byte, x sample, tail float64) {
		text, _ := unpad(padded)
		c := float64(held[text])
		switch {
		case !x.informs(tail):
			none++
		case printed:
			count := countFrom(x, tail)
			into[text] = count.Lo <= c && c <= count.Hi
		default:
			into[text] = x.holds(c, tail)
		}
	}
	if len(asks) == 0 {
		for _, text := range s.list {
			check(listed, text, s.listed(text, least), (1-confidence)/2)
		}
		return listed, asked, none, off
	}
	samples, _ := s.distinct(asks)
	tail := s.samples(samples, confidence)
	for text, x := range samples {
		check(asked, []byte(text), x, tail)
	}
	return listed, asked, none, off
}
