package relaynoise_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// TestLongTablesEqualEnumeration compares the curve of two copies of one cell's pair with the enumeration of two cells,
// for one batch, over epochs and with local randomization. It must lie on or above the enumeration, and close to it.
func TestLongTablesEqualEnumeration(t *testing.T) {
	mirrored := func(rising []uint64) []uint64 {
		falling := slices.Clone(rising)
		slices.Reverse(falling)
		return append(rising, falling[1:]...)
	}
	for name, table := range map[string][]uint64{
		"gaussian": relaynoise.Gaussian(2.5, 12), "wide": relaynoise.Gaussian(30, 150),
		"laplace": relaynoise.Laplace(.4, .4, 20, 40), "steps": mirrored([]uint64{1, 1, 7, 7, 9}),
		"hole": mirrored([]uint64{1, 2, 0, 3}),
	} {
		n := &task.Noise{Kind: task.NoiseCells, Cells: 7, Tables: [][]uint64{table}}
		exact, err := relaynoise.New(n)
		require.NoError(t, err, name)
		long, err := relaynoise.Long(n)
		require.NoError(t, err, name)
		exactLaw, longLaw, local := exact.Law(), long.Law(), long.Local(.3)
		localLaw := local.Law()
		for _, eps := range []float64{0, .01, .1, .3, 1, 2, 4} {
			want := exact.Delta(eps) - 5e-15 // [Curve.Delta] of enumerated cells adds nearly that for rounding.
			require.GreaterOrEqual(t, long.Delta(eps), want*(1-1e-12), "%s at %v", name, eps)
			if eps > 0 && name != "hole" { // With many infinite losses, the bound is only safe.
				require.LessOrEqual(t, long.Delta(eps), want*1.02+2e-14, "%s at %v", name, eps)
				require.GreaterOrEqual(t, longLaw.Delta(eps), want*(1-1e-12), "%s's law at %v", name, eps)
				require.LessOrEqual(t, longLaw.Delta(eps), exactLaw.Delta(eps)*1.02+2e-14, "%s's law at %v", name, eps)
				want = exact.Local(.3).Delta(eps) - 5e-15
				require.GreaterOrEqual(t, local.Delta(eps), want, name)
				require.GreaterOrEqual(t, localLaw.Delta(eps), want, name)
			}
			if eps > 0 && name != "hole" {
				year := func(c *relaynoise.Curve) float64 {
					return compose.Delta([]compose.Observation{c.Observation(9)}, 3*eps, 1e-12)
				}
				require.InEpsilon(t, year(exact)+1e-11, year(long)+1e-11, 2e-2, "%s at %v", name, eps)
			}
		}
	}
}

// TestLongHorizons: count and histogram over many epochs, with the errors that Laplace and Gaussian tables can reach.
// With a little less noise, each exceeds its target.
func TestLongHorizons(t *testing.T) {
	for epochs, most := range map[uint64]float64{2: 2.81, 4: 5.65, 8: 11.32, 16: 17} {
		target := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: epochs}
		n, err := relaynoise.FixedTotal(2, target)
		laws := requireKeeps(t, n, err, target)
		require.LessOrEqual(t, math.Sqrt(laws.Cells[0].Variance()), most, "%d epochs", epochs)
	}
	year := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 365}
	n, err := relaynoise.Independent(256, year, 0)
	laws := requireKeeps(t, n, err, year)
	require.LessOrEqual(t, math.Sqrt(laws.Cells[0].Variance()), 115.)
	require.LessOrEqual(t, laws.Cells[0].Mean(), 700.)
	for _, narrower := range []func(c int) []uint64{
		func(c int) []uint64 { return relaynoise.Gaussian(113.5, c) }, // σ too small by a hundredth
		func(int) []uint64 { return relaynoise.Gaussian(114.7, 600) }, // cut too early
	} {
		n.Tables[0] = narrower(len(n.Tables[0]) / 2)
		curve, err := relaynoise.New(n)
		require.NoError(t, err)
		require.Greater(t, year.Total(curve), year.Delta)
	}
	n.Tables[0][3]++
	_, err = relaynoise.New(n)
	require.ErrorContains(t, err, "read backwards")
	n.Tables[0] = make([]uint64, 5000)
	_, err = relaynoise.New(n)
	require.ErrorContains(t, err, "at most 4096")
}

// TestAllEventsFigures: k events in all epochs of the claim, and 13, which one event in any 30 of 365 epochs makes. 15
// take as many copies for a count as 30 epochs without a limit on events.
func TestAllEventsFigures(t *testing.T) {
	for _, c := range []eventsFigure{
		{1, 1e-6, 1, 2.9}, {1, 1e-6, 2, 5.8}, {1, 1e-6, 4, 11.5}, {3, 1e-5, 1, .89}, {3, 1e-5, 2, 1.9},
		{3, 1e-5, 4, 3.9}, {1, 1e-6, 13, 22.2}, {3, 1e-5, 13, 7.3},
		{1, 1e-6, 15, 23.7}, {3, 1e-5, 15, 7.9},
	} {
		c.check(t)
	}
}
