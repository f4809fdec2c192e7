package stattest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file tests whether an order is uniformly random: it counts, over many trials, the places of each of n things.
//
// With C[i][j] the number of trials, of N, in which thing i is at place j, and E = N/n, uniform orders give
//
//	T = (n-1)/N · Σ_ij (C[i][j] - E)²   ~   χ² with (n-1)² degrees of freedom        (1)
//
// as N grows: the entries of a random permutation matrix have the covariances of H⊗H/(n-1), where H subtracts the
// mean of n numbers and has rank n-1. Single places do not detect a random rotation, so the places of both things i
// and i+1 are counted too: Pearson's χ² over n(n-1) pairs of places, of equal probability,
//
//	T_i = n(n-1)/N · Σ_(j≠k) (C_i[j][k] - N/(n(n-1)))²   ~   χ² with n(n-1)-1 degrees of freedom.   (2)
//
// A χ² variable with d degrees of freedom exceeds d + 2√(d·x) + 2x with probability at most e^-x [LM00] (Lemma 1).
// With x = ln((n+1)/α) for each of the n+1 statistics, uniform orders are refused with probability at most α = 10⁻⁶,
// in the limit of large N.
//
// [LM00]: https://doi.org/10.1214/aos/1015957395

// FalseAlarm is the probability with which uniform orders are refused.
const FalseAlarm = 1e-6

// Sizes for the tests of every permutation in the system. Code that permutes is tested in [Trials] trials. Whole
// paths through sealed slots or processes are tested in [FewTrials], which detect a missing permutation but not a
// slight bias. In 200,000 simulated runs of [FewTrials] trials, (1) never came within 10 of its limit.
const (
	Things    = 8
	Trials    = 100_000
	FewTrials = 100
)

// minExpected is the least expected count of a cell for which χ² approximates (2) well enough. With fewer trials only
// (1) is tested.
const minExpected = 100

// Orders counts the orders of n things.
type Orders struct {
	trials int
	places [][]int   // C, by thing and place
	pairs  [][][]int // C_i, by thing and the places of it and the next
}

// NewOrders returns the counts of no orders of n ≥ 2 things.
func NewOrders(n int) *Orders {
	o := &Orders{places: square(n)}
	for range n {
		o.pairs = append(o.pairs, square(n))
	}
	return o
}

func square(n int) [][]int {
	out := make([][]int, n)
	for i := range out {
		out[i] = make([]int, n)
	}
	return out
}

// Add counts one order: order[j] is the number of the thing at place j, from 0 on.
func (o *Orders) Add(t testing.TB, order []int) {
	t.Helper()
	n := len(o.places)
	place := make([]int, n)
	for j, thing := range order {
		place[thing] = j + 1
	}
	if len(order) != n || slices.Contains(place, 0) {
		require.Fail(t, "not an order of all things", "%v", order)
	}
	for i, at := range place {
		o.places[i][at-1]++
		o.pairs[i][at-1][place[(i+1)%n]-1]++
	}
	o.trials++
}

// ChiSquare returns a number that a χ² variable with df degrees of freedom exceeds with probability alarm at
// most, by [LM00].
func ChiSquare(df, alarm float64) float64 {
	x := -math.Log(alarm)
	return df + 2*math.Sqrt(df*x) + 2*x
}

// Biased returns an error unless the orders look uniform.
func (o *Orders) Biased() error {
	n := float64(len(o.places))
	x := math.Log((n + 1) / FalseAlarm)
	most := func(df float64) float64 { return ChiSquare(df, math.Exp(-x)) }
	trials := float64(o.trials)
	single := 0.0
	for _, row := range o.places {
		for _, count := range row {
			single += (n - 1) / trials * math.Pow(float64(count)-trials/n, 2) // (1)
		}
	}
	if limit := most((n - 1) * (n - 1)); !(single <= limit) {
		return fmt.Errorf("not a uniform order: χ² over places is %.0f, want at most %.0f; %d trials: %v",
			single, limit, o.trials, o.places)
	}
	cells := n * (n - 1)
	if trials < minExpected*cells {
		return nil
	}
	for i, counts := range o.pairs {
		both := 0.0
		for j, row := range counts {
			for k, count := range row {
				if j != k {
					both += cells / trials * math.Pow(float64(count)-trials/cells, 2) // (2)
				}
			}
		}
		if limit := most(cells - 1); !(both <= limit) {
			return fmt.Errorf("not a uniform order: χ² over the places of %d and the next is %.0f, want at most "+
				"%.0f; %d trials",
				i, both, limit, o.trials)
		}
	}
	return nil
}

// Uniform asserts that order returns uniform orders of [Things] things, over a number of trials.
func Uniform(t *testing.T, trials int, order func() []int) {
	t.Helper()
	o := NewOrders(Things)
	for range trials {
		o.Add(t, order())
	}
	require.NoError(t, o.Biased())
}

// UniformLanes is [Uniform] for several lanes at once. Each lane must have a uniform order, and so must the things at
// the places of thing 0, 1, … of the first lane: otherwise the orders would tell which things belong together.
// Uniform lanes are independent, so all lanes together are tested too: with L lanes, a bias that all share shows in
// an L-th of the trials.
func UniformLanes(t *testing.T, trials, lanes int, orders func() [][]int) {
	t.Helper()
	each, beside := make([]*Orders, lanes), make([]*Orders, lanes)
	for lane := range lanes {
		each[lane], beside[lane] = NewOrders(Things), NewOrders(Things)
	}
	all, allBeside := NewOrders(Things), NewOrders(Things)
	across := make([]int, Things)
	for range trials {
		made := orders()
		require.Len(t, made, lanes)
		for lane, order := range made {
			each[lane].Add(t, order)
			all.Add(t, order)
			if lane > 0 {
				for place, thing := range made[0] {
					across[thing] = order[place]
				}
				beside[lane].Add(t, across)
				allBeside.Add(t, across)
			}
		}
	}
	for lane := range lanes {
		require.NoError(t, each[lane].Biased(), "lane %d", lane)
		if lane > 0 {
			require.NoError(t, beside[lane].Biased(), "lane %d beside the first", lane)
		}
	}
	require.NoError(t, all.Biased(), "all lanes")
	if lanes > 1 {
		require.NoError(t, allBeside.Biased(), "all lanes beside the first")
	}
}
