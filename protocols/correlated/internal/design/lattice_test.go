package design

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

type key struct {
	value    uint64
	negative bool
}

// inverse computes the columns of C by the recursion (L1) of lattice.go. Tests compare it with the halving tree.
func inverse(top uint64) map[int64]map[key]int64 {
	c := map[int64]map[key]int64{0: {}, 1: {}, -1: {key{1, true}: 1}}
	for v := int64(2); v <= int64(top); v++ {
		for _, s := range []int64{1, -1} {
			col := map[key]int64{{uint64(v), s < 0}: 1}
			for _, half := range []int64{v - v/2, v / 2} {
				for k, x := range c[-s*half] {
					col[k] -= x
				}
			}
			c[s*v] = col
		}
	}
	return c
}

var tops = func() (out []uint64) {
	for top := uint64(2); top <= 64; top++ {
		out = append(out, top)
	}
	return append(out, 256, 1024)
}()

// C is a right inverse: over the integers, Ã·c_i = e_i for every message i. For inputs i > 0 it may use only the kept
// atoms.
func TestRightInverse(t *testing.T) {
	for _, top := range tops {
		c := inverse(top)
		for i := -int64(top); i <= int64(top); i++ {
			if i == 0 || i == 1 {
				continue
			}
			got := map[int64]int64{}
			for k, x := range c[i] {
				a := PairAtom()
				if k.value > 1 {
					a = zeroSum(k.value, k.negative)
				}
				total := int64(0)
				for _, m := range a.Messages[:a.Size] {
					got[m] += x
					total += m
				}
				require.Zero(t, total)
			}
			for m, x := range got {
				if m != 1 && m != i {
					require.Zero(t, x, "Δ=%d c_%d row %d", top, i, m)
				}
			}
			require.EqualValues(t, 1, got[i])
		}
	}
}

func TestColumnsAreTheHalvingTree(t *testing.T) {
	for _, top := range tops {
		c := inverse(top)
		kept := map[key]int{}
		EachAtom(top, func(a Atom, v uint64, l int) { kept[key{v, a.Messages[0] < 0}] = l })
		largest := map[key]int64{}
		for i := uint64(0); i <= top; i++ {
			got := map[key]int64{}
			for _, e := range column(i) {
				k := key{e.value, e.negative}
				require.Zero(t, got[k], "an atom twice in a column")
				got[k] = e.shift
				if e.value == 1 {
					require.LessOrEqual(t, e.shift, int64(0))
					require.GreaterOrEqual(t, e.shift, -int64(i))
					continue
				}
				l, ok := kept[k]
				require.True(t, ok, "Δ=%d c_%d needs the dropped atom %v", top, i, k)
				require.LessOrEqual(t, e.depth, l)
				require.Equal(t, l%2, e.depth%2)
				require.LessOrEqual(t, e.shift*sign(e.depth), int64(1)<<e.depth)
				largest[k] = max(largest[k], e.shift*sign(e.depth))
			}
			want := map[key]int64{}
			for k, x := range c[int64(i)] {
				if x != 0 {
					want[k] = x
				}
			}
			require.Equal(t, want, got, "Δ=%d c_%d", top, i)
			l2 := math.Log2(float64(max(i, 2)))
			require.LessOrEqual(t, float64(len(got)), max(2*math.Ceil(l2), 1))
		}
		require.Len(t, kept, int(top-1+(top+1)/2-1), "number of atoms: one for each message except +1")
		for k := range kept {
			require.Positive(t, largest[k], "Δ=%d: no input needs atom %v", top, k)
		}
	}
}

// dominated reports whether the vector t of the paper's closed form dominates: Σ_s |c_i[s]|/t_s ≤ 1 for all columns i ≥
// 2, with t_v = ⌈Γ/|v|⌉, Γ = Δ·(⌈log Δ⌉+1).
func dominated(top uint64, log func(float64) float64) bool {
	gamma := top * uint64(math.Ceil(log(float64(top)))+1)
	for i := uint64(2); i <= top; i++ {
		sum := 0.0
		for _, e := range column(i) {
			sum += math.Abs(float64(e.shift)) / float64((gamma+e.value-1)/e.value)
		}
		if sum > 1+1e-12 {
			return false
		}
	}
	return true
}

func TestDominatingVectorNeedsTheBinaryLogarithm(t *testing.T) {
	for _, top := range tops {
		require.True(t, dominated(top, math.Log2), "Δ=%d", top)
	}
	for top := uint64(66); top <= 1024; top++ {
		require.False(t, dominated(top, math.Log), "ln must fail at Δ=%d", top)
	}
}
