package stattest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file tests whether an order is uniformly random. Over many trials it counts how often each of n things is at
// each position.
//
// Let N be the number of trials and C[i][j] how often thing i is at position j. Let E = N/n. Uniform orders give
//
//	T = (n-1)/N · Σ_ij (C[i][j] - E)²   ~   χ² with (n-1)² degrees of freedom        (1)
//
// as N grows: the entries of a random permutation matrix have the covariances of H⊗H/(n-1), where H subtracts the mean
// of n numbers and has rank n-1. (1) does not detect a random rotation. So the positions of thing i and thing i+1 are
// counted together, by Pearson's χ² over n(n-1) pairs of positions of equal probability:
//
//	T_i = n(n-1)/N · Σ_(j≠k) (C_i[j][k] - N/(n(n-1)))²   ~   χ² with n(n-1)-1 degrees of freedom.   (2)
//
// A χ² variable with d degrees of freedom exceeds d + 2√(d·x) + 2x with probability at most e^-x ([LM00], Lemma 1, a
// tail bound). With x = ln((n+1)/α) for each of the n+1 statistics, the test refuses uniform orders with probability at
// most α = 10⁻⁶, in the limit of large N.
//
// [LM00]: https://doi.org/10.1214/aos/1015957395

// FalseAlarm is the probability with which the test refuses uniform orders.
const FalseAlarm = 1e-6

// Numbers of things and trials for tests of permutations. Code that permutes is tested in [Trials] trials. Data that
// passes sealed slots or processes is tested in [FewTrials] trials, which detect a missing permutation but not a slight
// bias. In 200,000 simulated runs of [FewTrials] trials, the statistic (1) never came within 10 of its limit.
const (
	Things    = 8
	Trials    = 100_000
	FewTrials = 100
)

// minExpected is the least expected count of a pair of positions for which χ² approximates (2) well enough. Below it,
// only (1) is tested.
const minExpected = 100

// Orders counts how often each thing is at each position.
type Orders struct {
	trials int
	places [][]int   // C, by thing and position
	pairs  [][][]int // C_i, by thing, its position and the next thing's position
}

// NewOrders returns empty counts for n ≥ 2 things.
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

// Add counts one order. order[j] is the number of the thing at position j, from 0.
func (o *Orders) Add(t testing.TB, order []int) {
	t.Helper()
	n := len(o.places)
	place := make([]int, n)
	for j, thing := range order {
		place[thing] = j + 1
	}
	if len(order) != n || slices.Contains(place, 0) {
		require.Fail(t, "the order misses or repeats things", "%v", order)
	}
	for i, at := range place {
		o.places[i][at-1]++
		o.pairs[i][at-1][place[(i+1)%n]-1]++
	}
	o.trials++
}

// ChiSquare returns a number that a χ² variable with df degrees of freedom exceeds with probability at most alarm, by
// the tail bound of [LM00] (Lemma 1).
func ChiSquare(df, alarm float64) float64 {
	x := -math.Log(alarm)
	return df + 2*math.Sqrt(df*x) + 2*x
}

// Biased returns an error if the counted orders do not look uniform.
func (o *Orders) Biased() error {
	n := float64(len(o.places))
	x := math.Log((n + 1) / FalseAlarm)
	most := func(df float64) float64 { return ChiSquare(df, math.Exp(-x)) }
	trials := float64(o.trials)
	single := 0.0
	for _, row := range o.places {
		for _, count := range row {
			single += (n - 1) / trials * math.Pow(float64(count)-trials/n, 2) // statistic (1)
		}
	}
	if limit := most((n - 1) * (n - 1)); !(single <= limit) {
		return fmt.Errorf("not a uniform order: χ² over positions is %.0f, want at most %.0f; %d trials: %v",
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
					both += cells / trials * math.Pow(float64(count)-trials/cells, 2) // statistic (2)
				}
			}
		}
		if limit := most(cells - 1); !(both <= limit) {
			return fmt.Errorf("not a uniform order: χ² over the positions of thing %d and the next is %.0f, want at most "+
				"%.0f; %d trials",
				i, both, limit, o.trials)
		}
	}
	return nil
}

// Uniform fails the test if order does not return uniform orders of [Things] things. It calls order once per trial.
func Uniform(t *testing.T, trials int, order func() []int) {
	t.Helper()
	o := NewOrders(Things)
	for range trials {
		o.Add(t, order())
	}
	require.NoError(t, o.Biased())
}

// UniformLanes is [Uniform] for several lanes at once. Each lane must have a uniform order. Relative to the first lane,
// the order must be uniform as well: otherwise positions would tell which things belong together. As uniform lanes are
// independent, all lanes are also tested together. With L lanes, a bias that all share is detected there in an L-th of
// the trials.
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
			require.NoError(t, beside[lane].Biased(), "the order of lane %d relative to the first lane", lane)
		}
	}
	require.NoError(t, all.Biased(), "all lanes")
	if lanes > 1 {
		require.NoError(t, allBeside.Biased(), "the orders of all lanes relative to the first lane")
	}
}
