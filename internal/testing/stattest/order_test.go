package stattest_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

func straight() []int { return []int{0, 1, 2, 3, 4, 5, 6, 7} }

// swaps shuffles by Fisher and Yates' algorithm, but with the caller's bounds. Step i, from first down to last, swaps
// thing i with a random thing below bound(i).
func swaps(rng *rand.Rand, first, last int, bound func(i int) int) []int {
	out := straight()
	for i := first; i >= last; i-- {
		j := rng.IntN(bound(i))
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// TestUniformOrdersPass: uniform orders pass, in 20 runs with fixed seeds.
func TestUniformOrdersPass(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		stattest.Uniform(t, stattest.Trials, func() []int { return rng.Perm(stattest.Things) })
	}
}

// TestUniformLanes: two independent uniform orders pass.
func TestUniformLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	stattest.UniformLanes(t, stattest.Trials, 2, func() [][]int {
		return [][]int{rng.Perm(stattest.Things), rng.Perm(stattest.Things)}
	})
}

// TestOrdersThatAreNotUniform: typical mistakes in a shuffle are detected, with the number of trials that the real
// tests use.
func TestOrdersThatAreNotUniform(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	upTo := func(i int) int { return i + 1 }
	tests := map[string]func() []int{
		"no shuffle":           straight,
		"reversed":             func() []int { out := straight(); slices.Reverse(out); return out },
		"the last stays":       func() []int { return swaps(rng, 6, 1, upTo) },
		"no swap of the first": func() []int { return swaps(rng, 7, 2, upTo) },
		"one below":            func() []int { return swaps(rng, 7, 1, func(i int) int { return i }) }, // yields only cycles
		"any with any":         func() []int { return swaps(rng, 7, 0, func(int) int { return 8 }) },
		"one thing too few":    func() []int { out := straight(); rng.Shuffle(7, swap(out)); return out },
		"the first stays":      func() []int { out := straight(); rng.Shuffle(7, swap(out[1:])); return out },
		"rotated": func() []int {
			out := straight()
			k := rng.IntN(8)
			return append(out[k:],
				out[:k]...)
		},
		"in one of 50 straight": func() []int { return rare(rng) },
	}
	for name, order := range tests {
		o := stattest.NewOrders(stattest.Things)
		for range stattest.Trials {
			o.Add(t, order())
		}
		require.Error(t, o.Biased(), name)
	}
}

func swap(s []int) func(i, j int) { return func(i, j int) { s[i], s[j] = s[j], s[i] } }

func rare(rng *rand.Rand) []int {
	if rng.IntN(50) == 0 {
		return straight()
	}
	return rng.Perm(stattest.Things)
}
