package design

import "math/bits"

// The noise atoms of [GKMPS21] (section 4.4), without those that no right inverse needs. The values of messages run
// from -⌈Δ/2⌉ to Δ. There is one atom for each value except 0 and 1:
//
//	{-1, +1},   s_v = {v, -⌈v/2⌉, -⌊v/2⌋} for 2 ≤ v ≤ Δ,   s_{-v} = {-v, ⌈v/2⌉, ⌊v/2⌋} for 2 ≤ v ≤ ⌈Δ/2⌉
//
// There are as many atoms as messages other than +1. Let Ã be the integer matrix whose columns are the atoms and whose
// rows are the messages other than +1. It is square, so it has at most one inverse C. The columns of C for inputs are
//
//	c₀ = c₁ = 0,  c_i = e_{s_i} - c_{-⌈i/2⌉} - c_{-⌊i/2⌋}                            (L1)
//	c_{-1} = e_{-1,+1},  c_{-i} = e_{s_{-i}} - c_{⌈i/2⌉} - c_{⌊i/2⌋}
//
// Unrolled, c_i is a halving tree. At depth ℓ it has 2^ℓ nodes with the values ⌊i/2^ℓ⌋ and ⌊i/2^ℓ⌋+1, of sign (-1)^ℓ. A
// node of value 2 or more adds (-1)^ℓ to the entry of the atom of that value and sign. A node of value 1 ends its
// branch, and adds -1 to {-1,+1} if its sign is negative:
//
//	c_i[s_v] = (-1)^ℓ·m_ℓ(v), v = (-1)^ℓ·⌊i/2^ℓ⌋ or (-1)^ℓ·(⌊i/2^ℓ⌋+1),  Σ_v m_ℓ(v) = 2^ℓ        (L2)
//
// One i does not meet an atom at two depths. The depths would differ by 2 or more, and so the values by a factor of
// about 4.

// level returns the level of the atom of value v ≥ 2: the deepest depth ℓ at which an input up to top meets it. ℓ is
// the largest with (v-1)·2^ℓ < top that is odd for a negative atom and even for a positive one. ok is false if there is
// none, so that no input needs the atom.
func level(top, v uint64, negative bool) (depth int, ok bool) {
	depth = bits.Len64((top-1)/(v-1)) - 1 // (v-1)·2^ℓ ≤ top-1
	if negative != (depth%2 == 1) {
		depth--
	}
	return depth, depth >= 0
}

// Levels returns the number of levels: the depths at which an input up to top has nodes of value 2 or more.
func Levels(top uint64) int { return bits.Len64(top - 1) }

// node is a value at one depth of a halving tree, with the number of its occurrences there.
type node struct{ value, times uint64 }

// nodes returns the two values at one depth of the halving tree of i. They differ by 1; the larger may occur 0 times.
// All nodes above this depth must have value 2 or more.
func nodes(i uint64, depth int) (low, high node) {
	low.value, high.value = i>>depth, i>>depth+1
	high.times = i & (1<<depth - 1)
	low.times = 1<<depth - high.times
	return low, high
}

// entry is a non-zero entry of column c_i of the inverse matrix C.
type entry struct {
	value    uint64 // |v| for the atom s_v of this row, or 1 for {-1,+1}.
	negative bool   // Whether v < 0.
	depth    int    // Depth ℓ of the nodes in the halving tree.
	shift    int64  // The entry's value, c_i[s_v].
}

// column returns the non-zero entries of c_i, by depth, with that of {-1,+1} last.
func column(i uint64) (out []entry) {
	for depth := 0; i>>depth >= 1; depth++ {
		low, high := nodes(i, depth)
		for _, n := range []node{low, high} {
			if n.value >= 2 && n.times > 0 {
				out = append(out, entry{n.value, depth%2 == 1, depth, sign(depth) * int64(n.times)})
			}
		}
		if low.value == 1 { // pairShift counts the nodes of value 1 at this depth and the next.
			break
		}
	}
	if s := pairShift(i); s != 0 {
		out = append(out, entry{1, true, bits.Len64(i) - 1, s})
	}
	return out
}

// pairShift returns the entry of c_i for {-1,+1}, between -i and 0. With L = ⌊log₂ i⌋, the branches of the halving tree
// end in 2^{L+1} - i nodes of value 1 at depth L and in 2·(i - 2^L) at depth L+1.
func pairShift(i uint64) int64 {
	if i < 2 {
		return 0
	}
	last := bits.Len64(i) - 1
	if last%2 == 1 {
		return int64(i) - 2<<last
	}
	return -2 * int64(i-1<<last)
}

func sign(depth int) int64 { return 1 - 2*int64(depth%2) }

// Atom is one element of the noise: messages whose sum is 0, or one message ±1 of the central noise.
type Atom struct {
	Messages [3]int64
	Size     int // Number of entries of Messages in use.
}

// PairAtom returns the atom {-1,+1}.
func PairAtom() Atom { return Atom{[3]int64{-1, 1}, 2} }

// zeroSum returns the atom s_v, or its negative, for a value v of 2 or more.
func zeroSum(value uint64, negative bool) Atom {
	v := int64(value)
	s := int64(1)
	if negative {
		s = -1
	}
	return Atom{[3]int64{s * v, -s * (v - v/2), -s * (v / 2)}, 3}
}

// EachAtom calls f for every zero-sum atom of value 2 or more that an input up to top needs.
func EachAtom(top uint64, f func(a Atom, value uint64, level int)) {
	for v := uint64(2); v <= top; v++ {
		for _, negative := range []bool{false, true} {
			if l, ok := level(top, v, negative); ok {
				f(zeroSum(v, negative), v, l)
			}
		}
	}
}

// atomCounts returns the number of atoms of each level.
func atomCounts(top uint64) []uint64 {
	counts := make([]uint64, Levels(top))
	EachAtom(top, func(_ Atom, _ uint64, l int) { counts[l]++ })
	return counts
}
