package strings

import (
	"cmp"
	"math"
	"slices"
)

// node is a prefix of a text in the search. Its last byte may be there in part, from the highest bit on.
type node struct {
	text  []byte // What is there of it; zeros for the bits of its last byte that are not.
	state uint64 // Of the hash after its whole bytes.
	score int32  // 1/nat nats.
	mode  uint8  // After its whole bytes.
}

// child is a prefix of some more bits.
type child struct {
	parent, score int32
	next          uint8
}

// beam returns the padded texts that the levels lead to, at most so many, by falling score: the logarithm of how much
// likelier the messages are if ref of them in each of its cells are a text's own, and of its bytes under the model. Of
// each level those prefixes are kept that score most.
func (s *search) beam(ref float64, width int) []node {
	nodes := []node{{state: s.m.plan.seed}}
	at := 0
	for level := range s.m.plan.levels {
		scores, kin := s.scores(level, ref)
		for end := s.m.plan.prefix(level); at < end; {
			st := step{at: at, bits: min(8-at%8, end-at), level: level, width: width}
			if at += st.bits; at == end {
				st.scores, st.kin = scores, kin
			}
			nodes = s.grow(nodes, st)
		}
	}
	nodes = slices.DeleteFunc(nodes, func(n node) bool {
		_, ok := unpad(n.text)
		return !ok
	})
	slices.SortStableFunc(nodes, func(x, y node) int { return cmp.Compare(y.score, x.score) })
	return nodes
}

// scores returns what each cell of a level adds to a score. A text that has ref messages there makes N of them
// likelier by the factor e^(N·ln(1+ref/mean) − ref). As a share f of the cells is full for the sake of other texts, it
// is never more than 1/f: neither those nor one that a prefix shares carry a text. Of listed texts' cells the rest
// counts. Prefixes of listed texts, by the state of the hash, have more where that is less than a text mostly has: they
// are known to be there, and others may continue them.
func (s *search) scores(level int, ref float64) (cells []int32, kin map[uint64]int32) {
	first, b := uint64(level)*s.m.plan.b, s.m.plan.b
	mean := s.mean[level]
	gain := math.Log1p(ref / mean)
	full := 1.0
	for y := first; y < first+b; y++ {
		if n := s.counts[y]; s.claims[y] == 0 && s.isFull(level, n) && float64(n)*gain > ref {
			full++
		}
	}
	score := func(evidence float64) int32 {
		return int32(math.Round(-nat * math.Log(full/float64(b)+math.Exp(min(-evidence, 16)))))
	}
	cells = make([]int32, b)
	least, most := uint64(max(0, ref-16)/gain), uint64((ref+math.Log(float64(b))+8)/gain)+1
	known := make([]int32, most-least+1) // By the number of messages: fewer or more score the same.
	for i := range known {
		known[i] = score(float64(least+uint64(i))*gain - ref)
	}
	for i := range cells {
		cells[i] = known[min(max(s.counts[first+uint64(i)], least), most)-least]
	}
	taken := map[uint64]float64{}
	for i, text := range s.list {
		taken[s.m.plan.of(level, text)] += s.sizes[i]
	}
	for y, others := range taken {
		rest := float64(s.counts[y]) - mean - others
		cells[y-first] = score((rest - ref/2) * ref / (mean + others))
	}
	kin = map[uint64]int32{}
	for _, text := range s.list {
		state := s.m.plan.state(level, text)
		kin[state] = max(0, score((mean+knownShare*ref)*gain-ref)-cells[s.m.plan.cell(level, state)])
	}
	return cells, kin
}

// knownShare is what a prefix of a listed text scores at least: as a cell with this share of what is looked for.
const knownShare = .8

// step is what [search.grow] adds to prefixes: so many bits from a place on, and the scores of the level if they
// complete it.
type step struct {
	at, bits, level int
	scores          []int32
	kin             map[uint64]int32
	width           int
}

// grow continues prefixes by some bits of one byte and keeps those that score most.
func (s *search) grow(nodes []node, st step) []node {
	have := st.at % 8
	children := make([]child, 0, min(len(nodes)<<st.bits, 1<<21))
	for i := range nodes {
		n := &nodes[i]
		old := uint32(0)
		if have > 0 {
			old = uint32(n.text[st.at/8]) >> (8 - have)
		}
		before := n.score - s.model.prefix[n.mode][have][old]
		after := s.model.prefix[n.mode][have+st.bits]
		for next := range uint32(1) << st.bits {
			value := old<<st.bits | next
			if after[value] == impossible {
				continue
			}
			score := before + after[value]
			if st.scores != nil {
				state := absorb1(n.state, byte(value))
				score += st.scores[s.m.plan.cell(st.level, state)]
				score += st.kin[state]
			}
			children = append(children, child{int32(i), score, uint8(next)})
		}
	}
	children = best(children, st.width)
	return born(nodes, children, st)
}

// best keeps so many children that score most; of equal ones the first.
func best(children []child, width int) []child {
	if len(children) <= width {
		return children
	}
	lo, hi := children[0].score, children[0].score
	for _, c := range children {
		lo, hi = min(lo, c.score), max(hi, c.score)
	}
	lo = max(lo, hi-1<<20)
	tally := make([]int, hi-lo+1)
	for _, c := range children {
		tally[max(c.score, lo)-lo]++
	}
	left, cut := width, hi
	for tally[cut-lo] <= left {
		left -= tally[cut-lo]
		cut--
	}
	out := children[:0]
	for _, c := range children {
		switch score := max(c.score, lo); {
		case score > cut:
			out = append(out, c)
		case score == cut && left > 0:
			out = append(out, c)
			left--
		}
	}
	return out
}

// born returns children as prefixes.
func born(nodes []node, children []child, st step) []node {
	length := st.at/8 + 1
	out, arena := make([]node, len(children)), make([]byte, len(children)*length)
	for i, c := range children {
		n := nodes[c.parent]
		text := arena[i*length : (i+1)*length]
		copy(text, n.text)
		at := st.at / 8
		text[at] |= c.next << (8 - st.at%8 - st.bits)
		state, mode := n.state, n.mode
		if (st.at+st.bits)%8 == 0 {
			state = absorb1(state, text[at])
			mode, _ = follow(mode, text[at])
		}
		out[i] = node{text, state, c.score, mode}
	}
	return out
}

// model says how likely one byte is behind those before it, in nats: what an analyzer may guess of texts before it
// has seen any, and then what those that it found are made of. The search orders candidates by it. What is listed
// does not rest on it.
type model struct {
	// prefix is ln Pr of the first bits of a byte, by mode, number of bits and their value.
	prefix [modes][9][]int32
}

// The modes of a text: after a character of one byte or none, after one of more, inside one that lacks one to three
// bytes, and behind the text's end.
const (
	modeASCII = iota
	modeWide
	modeLacks1
	modeLacks2
	modeLacks3
	modeEnded
	modes
)

const (
	nat        = 256               // Scores are whole numbers of 1/nat nats.
	impossible = math.MinInt32 / 2 // ln 0.
)

// The shares of what may come where a character may begin: ends, characters of more bytes behind others of one and
// of more, and of those of one byte the common ones, other printable ones and controls.
const (
	shareEnd      = .05
	shareWide     = .05
	shareWideNext = .7
	shareCommon   = .65
	sharePrinted  = .28
	shareControl  = .07
	priorBytes    = 64 // How many bytes of found texts weigh as much as all this.
)

// follow returns the mode after a byte, and false where it cannot come: what comes is UTF-8, but for some forms
// that unpad refuses, and zeros behind the text.
func follow(mode uint8, next byte) (uint8, bool) {
	switch {
	case mode == modeEnded:
		return modeEnded, next == 0
	case mode == modeLacks1:
		return modeWide, next&0xc0 == 0x80
	case mode > modeLacks1:
		return mode - 1, next&0xc0 == 0x80
	case next == 0:
		return modeEnded, true
	case next < 0x80:
		return modeASCII, true
	case next >= 0xc2 && next < 0xf5:
		return lacking(next), true
	}
	return 0, false
}

// lacking returns the mode after the first byte of a character of more than one.
func lacking(first byte) uint8 {
	switch {
	case first < 0xe0:
		return modeLacks1
	case first < 0xf0:
		return modeLacks2
	}
	return modeLacks3
}

// newModel returns the model after texts that were found.
func newModel(found [][]byte) *model {
	var seen [256]float64
	all := 0.0
	for _, text := range found {
		for _, c := range text {
			if c == 0 {
				seen[c]++
				all++
				break
			}
			if c < 0x80 || c >= 0xc0 {
				seen[c]++
				all++
			}
		}
	}
	m := &model{}
	for mode := range uint8(modes) {
		var p [256]float64
		for c := range p {
			if _, ok := follow(mode, byte(c)); ok {
				p[c] = guess(mode, byte(c))
				if mode <= modeWide {
					p[c] = (priorBytes*p[c] + seen[c]) / (priorBytes + all)
				}
			}
		}
		m.set(mode, p)
	}
	return m
}

// set writes the logarithms of the shares of all prefixes of a byte.
func (m *model) set(mode uint8, p [256]float64) {
	for bits := range 9 {
		sums := make([]float64, 1<<bits)
		for c, share := range p {
			sums[c>>(8-bits)] += share
		}
		m.prefix[mode][bits] = make([]int32, 1<<bits)
		for i, sum := range sums {
			m.prefix[mode][bits][i] = impossible
			if sum > 0 {
				m.prefix[mode][bits][i] = int32(math.Round(nat * math.Log(sum)))
			}
		}
	}
}

// guess returns the share of a byte that may come, before anything was found.
func guess(mode uint8, c byte) float64 {
	wide := float64(shareWide)
	if mode == modeWide {
		wide = shareWideNext
	}
	switch one := 1 - shareEnd - wide; {
	case mode == modeEnded:
		return 1
	case mode > modeWide:
		return 1. / 64
	case c == 0:
		return shareEnd
	case c >= 0x80:
		return wide / 51 // First bytes from 0xc2 to 0xf4.
	case common(c):
		return one * shareCommon / 42
	case c >= ' ' && c < 0x7f:
		return one * sharePrinted / 53
	default:
		return one * shareControl / 32
	}
}

// common says whether a character is one that identifiers, addresses and words are made of: 42 are.
func common(c byte) bool {
	switch c {
	case ' ', '-', '.', '/', '_', ':':
		return true
	}
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}
