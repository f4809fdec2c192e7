package strings

import (
	"cmp"
	"math"
	"slices"
)

// node is a prefix of a text in the search. Its last byte may be partial: then only its highest bits are set.
type node struct {
	text  []byte // The prefix; zeros for the missing bits of its last byte.
	state uint64 // State of the hash after the whole bytes.
	score int32  // Logarithm of the likelihood, in units of 1/nat nats.
	mode  uint8  // What may follow the whole bytes in UTF-8: one of the modes below.
}

// child is a prefix of the previous step, continued by some bits.
type child struct {
	parent, score int32
	next          uint8
}

// beam searches level by level and returns at most width padded texts, by falling score. The score of a text is a
// log-likelihood ratio plus the logarithm of the probability of its bytes under the model. The ratio compares the
// messages in its cells if ref of them per cell are the text's own with those if none are. At each level it keeps the
// prefixes with the highest scores. The trail records which scores were high enough.
func (s *search) beam(ref float64, width int) ([]node, *trail) {
	s.model = newModel(s.list)
	way := &trail{ref: ref, model: s.model}
	nodes, keep := []node{{state: s.m.plan.seed}}, &selection{width: width}
	at := 0
	for level := range s.m.plan.levels {
		for end := s.m.plan.prefix(level); at < end; {
			st := step{at: at, bits: min(8-at%8, end-at), level: level, levelScores: &levelScores{}}
			if at += st.bits; at == end {
				st.levelScores = s.scores(level, ref)
			}
			nodes = s.grow(nodes, st, keep)
			st.cells, st.prefixScores, st.continued = nil, nil, nil
			way.steps = append(way.steps, beamStep{st, keep.floor})
		}
	}
	nodes = slices.DeleteFunc(nodes, func(n node) bool {
		_, ok := unpad(n.text)
		return !ok
	})
	slices.SortStableFunc(nodes, func(x, y node) int { return cmp.Compare(y.score, x.score) })
	return nodes, way
}

// levelScores holds what the cells of one level add to scores.
type levelScores struct {
	mean, ref, full float64            // Mean messages of a cell; a text's own messages; share of full cells.
	taken           map[uint64]float64 // By cell: messages of the listed texts that fall in it.
	least           uint64             // In a cell of no listed text, fewer messages score the same as least.
	known           []int32            // Scores by number of messages, from least on. The last is for more too.
	cells           []int32            // Score of each cell of the level's table.
	most            int32              // Largest score of a cell.
	prefixScores    map[uint64]int32   // Extra scores of prefixes of listed texts, by hash state.
	continued       map[uint64]bool    // Hash states of listed texts' prefixes without their last byte.
}

// scores returns what each cell of a level adds to a score. A text with ref messages of its own in a cell makes N
// messages there likelier by the factor e^(N·ln(1+ref/mean) − ref). A share f of the cells is full because of other
// texts. So the factor is capped at 1/f: a full cell or a shared prefix alone must not make a text likely. In a listed
// text's cell, only the messages beyond the listed text's count. A prefix of a listed text exists for sure, and other
// texts may continue it. So it gets an extra score if its own is lower than a text's usually is.
func (s *search) scores(level int, ref float64) *levelScores {
	first, b := uint64(level)*s.m.plan.b, s.m.plan.b
	mean := s.mean[level]
	gain := math.Log1p(ref / mean)
	full := 1.0
	for y := first; y < first+b; y++ {
		if n := s.counts[y]; s.claims[y] == 0 && s.isFull(level, n) && float64(n)*gain > ref {
			full++
		}
	}
	l := &levelScores{mean: mean, ref: ref, full: full / float64(b), taken: map[uint64]float64{},
		prefixScores: map[uint64]int32{}, continued: map[uint64]bool{}}
	l.least = uint64(max(0, ref-16) / gain)
	most := uint64((ref+math.Log(float64(b))+8)/gain) + 1
	for n := l.least; n <= most; n++ {
		l.known = append(l.known, l.score(float64(n)*gain-ref))
	}
	for i, text := range s.list {
		l.taken[s.m.plan.of(level, text)] += s.sizes[i]
	}
	l.cells = make([]int32, b)
	for i := range l.cells {
		l.cells[i] = l.free(s.counts[first+uint64(i)])
	}
	for y := range l.taken {
		l.cells[y-first] = l.of(y, s.counts[y])
	}
	l.most = slices.Max(l.cells)
	for _, text := range s.list {
		state := s.m.plan.state(level, text)
		l.prefixScores[state] = max(0, l.score((mean+knownShare*ref)*gain-ref)-l.cells[s.m.plan.cell(level, state)])
		l.continued[absorb(s.m.plan.seed, text[:(s.m.plan.prefix(level)-1)/8])] = true
	}
	return l
}

// score returns the capped log-likelihood ratio for evidence in nats, in units of 1/nat nats.
func (l *levelScores) score(evidence float64) int32 {
	return int32(math.Round(-nat * math.Log(l.full+math.Exp(min(-evidence, 16)))))
}

// of returns the score of cell y with this number of messages.
func (l *levelScores) of(y, messages uint64) int32 {
	if others, ok := l.taken[y]; ok {
		rest := float64(messages) - l.mean - others
		return l.score((rest - l.ref/2) * l.ref / (l.mean + others))
	}
	return l.free(messages)
}

// free returns the score of a cell of no listed text.
func (l *levelScores) free(messages uint64) int32 {
	return l.known[min(max(messages, l.least)-l.least, uint64(len(l.known)-1))]
}

// knownShare sets the least score of a prefix of a listed text. It is the score of a cell with this share of the
// messages of a text that the pass searches for.
const knownShare = .8

// step describes one step of [search.grow]: the number of bits that it adds to prefixes from position at on. If these
// bits complete a level, it holds the level's scores.
type step struct {
	at, bits, level int
	*levelScores
}

// grow continues prefixes by some bits of one byte and keeps the continuations with the highest scores.
func (s *search) grow(nodes []node, st step, keep *selection) []node {
	keep.reset()
	have := st.at % 8
	moves := s.model.moves(have, st.bits)
	for i := range nodes {
		n, old := &nodes[i], uint8(0)
		if have > 0 {
			old = n.text[st.at/8] >> (8 - have)
		}
		st.family(s.m.plan, int32(i), n, old<<st.bits, moves[int(n.mode)<<have|int(old)], keep)
	}
	return childNodes(nodes, keep.all(), st)
}

// family adds the children of one prefix to keep. bits are the bits that the prefix's partial byte already has. moves
// come likeliest first: once a child is too unlikely whatever its cell holds, all later ones are too.
func (st step) family(p plan, parent int32, n *node, bits uint8, moves []move, keep *selection) {
	heir := st.continued[n.state]
	for _, m := range moves {
		score := n.score + m.gain
		if !heir && score+st.most <= keep.floor {
			break
		}
		if st.cells != nil {
			state := absorb1(n.state, bits|m.next)
			score += st.cells[p.cell(st.level, state)]
			if heir {
				score += st.prefixScores[state]
			}
		}
		keep.add(child{parent, score, m.next})
	}
}

// selection keeps the width children with the highest scores. Among children of equal score it keeps the first.
type selection struct {
	width int
	kept  []child
	floor int32 // A child must score more than this to be kept.
	tally []int32
}

// rankedRange limits the range of scores that are told apart, in units of 1/nat nats. All scores further below the best
// count as equal.
const rankedRange = 1 << 20

func (k *selection) reset() { k.kept, k.floor = k.kept[:0], math.MinInt32 }

func (k *selection) add(c child) {
	if c.score <= k.floor {
		return
	}
	if k.kept = append(k.kept, c); len(k.kept) >= 4*k.width {
		k.cut()
	}
}

// all returns the kept children in the order of their arrival.
func (k *selection) all() []child {
	k.cut()
	return k.kept
}

// cut drops all children but the width with the highest scores, and raises the floor accordingly.
func (k *selection) cut() {
	if len(k.kept) <= k.width {
		return
	}
	lo, hi := k.kept[0].score, k.kept[0].score
	for _, c := range k.kept {
		lo, hi = min(lo, c.score), max(hi, c.score)
	}
	lo = max(lo, hi-rankedRange)
	k.tally = slices.Grow(k.tally[:0], int(hi-lo)+1)[:hi-lo+1]
	clear(k.tally)
	for _, c := range k.kept {
		k.tally[max(c.score, lo)-lo]++
	}
	left, floor := int32(k.width), hi
	for k.tally[floor-lo] <= left {
		left -= k.tally[floor-lo]
		floor--
	}
	out := k.kept[:0]
	for _, c := range k.kept {
		switch score := max(c.score, lo); {
		case score > floor:
			out = append(out, c)
		case score == floor && left > 0:
			out = append(out, c)
			left--
		}
	}
	k.kept, k.floor = out, floor
}

// childNodes turns the kept children into the prefixes of the next step.
func childNodes(nodes []node, children []child, st step) []node {
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

// model gives the logarithm of the probability of each byte, given the bytes before it, in units of 1/nat nats. It
// starts from a general guess about texts, and then follows the texts found. The search orders candidates by it. It
// does not decide which texts are listed: the checks do.
type model struct {
	// prefix holds ln Pr of the first bits of a byte, by mode, number of bits and their value.
	prefix [modes][9][]int32
	cache  [8][9][][]move // Results of the method moves.
}

// move is a continuation of a prefix: its next bits, and what they add to the score given the bits before.
type move struct {
	gain int32
	next uint8
}

// moves returns the possible next bits of a partial byte, the likeliest first. A prefix's list has as its index the
// number mode<<have | the present bits.
func (m *model) moves(have, bits int) [][]move {
	if m.cache[have][bits] != nil {
		return m.cache[have][bits]
	}
	out := make([][]move, modes<<have)
	for i := range out {
		mode, old := i>>have, i&(1<<have-1)
		for next := range 1 << bits {
			if after := m.prefix[mode][have+bits][old<<bits|next]; after != impossible {
				out[i] = append(out[i], move{after - m.prefix[mode][have][old], uint8(next)})
			}
		}
		slices.SortStableFunc(out[i], func(x, y move) int { return cmp.Compare(y.gain, x.gain) })
	}
	m.cache[have][bits] = out
	return out
}

// The modes of a text say what may come next: after a one-byte character or at the start, after a longer character,
// inside a character that lacks one to three bytes, and after the text's end.
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
	impossible = math.MinInt32 / 2 // Stands for ln 0.
)

// The guessed probabilities of what comes where a character may begin. They are for the text's end, and for a longer
// character after a one-byte character and after a longer one. One-byte characters divide into common ones, other
// printable ones and controls.
const (
	shareEnd      = .05
	shareWide     = .05
	shareWideNext = .7
	shareCommon   = .65
	sharePrinted  = .28
	shareControl  = .07
	priorBytes    = 64 // The prior weighs as much as this many bytes of found texts.
)

// follow returns the mode after a byte, or false if the byte cannot come in this mode. It accepts UTF-8, with a few
// invalid forms that unpad refuses later, followed by zeros.
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

// lacking returns the mode after the first byte of a multi-byte character.
func lacking(first byte) uint8 {
	switch {
	case first < 0xe0:
		return modeLacks1
	case first < 0xf0:
		return modeLacks2
	}
	return modeLacks3
}

// newModel returns the model, adapted to the texts found so far.
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

// set stores the logarithms of the probabilities of all bit prefixes of a byte, given the probabilities p of the bytes.
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

// guess returns the probability of a valid byte before any text was found.
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

// common reports whether a character is one of the 42 of which identifiers, addresses and words mostly consist.
func common(c byte) bool {
	switch c {
	case ' ', '-', '.', '/', '_', ':':
		return true
	}
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}
