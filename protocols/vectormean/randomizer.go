package vectormean

import (
	"math"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize].
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	parts, err := m.parts(value)
	if err != nil {
		return nil, err
	}
	defer clear(parts)
	counts := make([]uint64, m.kinds())
	defer clear(counts)
	m.addUnits(counts, m.round(src, parts))
	for kind := range counts {
		n := m.noiseOf(uint64(kind))
		counts[kind] += src.Binomial(n.trials, n.chance)
	}
	return m.messages(counts), nil
}

// messages returns counts[kind] messages of each kind, by lane.
func (m *Mechanism) messages(counts []uint64) protocols.Messages {
	lanes := make(protocols.Messages, m.lanes)
	width := protocols.Indices(m.kinds()).Bytes()
	buffer := make([]byte, 0, 4096) // one buffer for all messages, to spare the garbage collector
	for kind, n := range counts {
		lane := &lanes[uint64(kind)/m.perLane()]
		for range n {
			buffer = protocols.Indices(m.kinds()).Encode(buffer, uint64(kind))
			*lane = append(*lane, buffer[len(buffer)-width:len(buffer):len(buffer)])
		}
	}
	return lanes
}

// noiseOf returns one client's noise on the counter of a kind of message.
func (m *Mechanism) noiseOf(kind uint64) noise {
	if m.null.trials > 0 && kind%m.perLane() == m.perLane()-1 {
		return m.null
	}
	return m.noise
}

// addUnits adds to counts the messages for one client's rounded coefficients x. Under padding none it also adds the
// null messages that fill each lane up to [Mechanism.most].
func (m *Mechanism) addUnits(counts []uint64, x []int64) {
	kinds := m.perLane()
	if m.null.trials > 0 {
		for lane := range m.lanes {
			counts[(lane+1)*kinds-1] += m.most()
		}
	}
	for j, units := range x {
		lane, kind := uint64(j), uint64(j)*kinds
		if m.frame == nil {
			lane, kind = 0, 2*uint64(j)
		}
		if units < 0 {
			kind, units = kind+1, -units
		}
		counts[kind] += uint64(units)
		if m.null.trials > 0 {
			counts[(lane+1)*kinds-1] -= uint64(units)
		}
	}
}

// part is a coefficient in units: a whole number, and a fraction in units of 1/[one]. With one lane, it has a sign.
type part struct {
	whole    int64
	fraction uint64
	negative bool
}

// one stands for a whole unit in the fixed-point form of fractions.
const one = 1 << 53

// parts returns a client's coefficients in units, clipped at [Mechanism.units]. Whatever the search for a
// representation did, later steps never see a larger one. It rounds fractions down to fixed point, so that norms do not
// grow.
func (m *Mechanism) parts(value []float64) ([]part, error) {
	v, err := protocols.Ball(m.task.Input, value)
	if err != nil {
		return nil, err
	}
	defer clear(v)
	if m.frame != nil {
		v, _ = m.frame.represent(v, m.bound)
		defer clear(v)
	}
	out := make([]part, len(v))
	for j, a := range v {
		t, negative := math.Min(math.Abs(a), 1)*m.units, a < 0
		if m.frame != nil {
			t, negative = (min(max(a/m.bound, -1), 1)+1)*m.units/2, false
		}
		whole, fraction := math.Modf(t)
		out[j] = part{int64(whole), uint64(fraction * one), negative}
	}
	return out, nil
}

// round rounds coefficients to whole units at random. Each rounding is unbiased. With a lane per coefficient the
// roundings are independent.
func (m *Mechanism) round(src *randomizer.Source, parts []part) []int64 {
	f, x := make([]uint64, len(parts)), make([]int64, len(parts))
	defer clear(f)
	m.roundTo(x, f, src, parts)
	return x
}

// roundTo is [Mechanism.round] into x, with scratch memory f for the fractions. Both are as long as parts.
func (m *Mechanism) roundTo(x []int64, f []uint64, src *randomizer.Source, parts []part) {
	for k, p := range parts {
		f[k] = p.fraction
	}
	if m.frame != nil {
		for k := range f {
			roundFraction(src, f, k)
		}
	} else {
		roundTogether(src, f)
	}
	for k, p := range parts {
		if x[k] = p.whole + int64(f[k]/one); p.negative {
			x[k] = -x[k]
		}
	}
}

// roundTogether replaces each fraction by 0 or one, by dependent rounding ([S01]). It takes two fractions at a time.
// One of them becomes 0 or one at random, the expected values of both are kept, and so is their sum. So the sum of all
// becomes one of the two adjacent whole numbers.
//
// [S01]: https://doi.org/10.1109/SFCS.2001.959935
func roundTogether(src *randomizer.Source, f []uint64) {
	open := -1 // Index of the only fraction so far that is not 0 or one; -1 if there is none.
	for k := range f {
		switch {
		case f[k] == 0:
		case open < 0:
			open = k
		default:
			open = pair(src, f, open, k)
		}
	}
	if open >= 0 {
		roundFraction(src, f, open)
	}
}

// roundFraction replaces fraction k by one, with a probability equal to the fraction, or else by 0.
func roundFraction(src *randomizer.Source, f []uint64, k int) {
	if src.Below(one) < f[k] {
		f[k] = one
	} else {
		f[k] = 0
	}
}

// pair rounds one of two fractions to 0 or one and gives the other the rest of their sum. It returns the index that
// still holds a fraction, or -1 if none does.
//
//	sum ≤ 1: (sum, 0) with probability f_j/sum, else (0, sum)
//	sum > 1: (1, sum-1) with probability (1-f_k)/(2-sum), else (sum-1, 1)
func pair(src *randomizer.Source, f []uint64, j, k int) (open int) {
	sum := f[j] + f[k]
	first, whole, rest := false, uint64(0), sum
	if sum <= one {
		first = src.Below(sum) >= f[j] // j becomes 0
	} else {
		first = src.Below(2*one-sum) < one-f[k] // j becomes 1
		whole, rest = one, sum-one
	}
	if first {
		f[j], f[k], open = whole, rest, k
	} else {
		f[j], f[k], open = rest, whole, j
	}
	if rest == one {
		return -1
	}
	return open
}
