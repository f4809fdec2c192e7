package dummies_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

func total(t uint64) *uint64 { return &t }

// laws are small enough to enumerate every outcome: at most three cells with at most three dummies each.
var laws = map[string]*task.Noise{
	"one table":       {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{3, 0, 5, 2}}},
	"two tables":      {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{1, 2}, {5, 1, 1}}, Which: runs(1, 0, 2, 1)},
	"total":           {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{4, 2, 1}}, Total: total(3)},
	"rest":            {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{4, 2, 1}}, Total: total(3), Rest: total(1)},
	"rest at the end": {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{4, 2, 1}}, Total: total(2), Rest: total(2)},
	"tilt": {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{1, 2, 1}},
		Tilt: &task.Tilt{Centre: 3, Weights: []uint64{0, 1, 2}, Factors: []uint64{9, 4, 1}}},
	"tilt from the middle": {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{1, 2, 4, 1}},
		Tilt: &task.Tilt{Centre: 1, Zero: 1, Weights: []uint64{0, 1, 2}, Factors: []uint64{9, 4, 2}}},
	"rising tilt": {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1, 2, 1}},
		Tilt: &task.Tilt{Centre: 2, Weights: []uint64{1, 1}, Factors: []uint64{1, 4, 9}}},
	"tilt and total": {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{2, 3, 1}}, Total: total(3),
		Tilt: &task.Tilt{Centre: 4, Weights: []uint64{1, 0, 2}, Factors: []uint64{3, 2, 1, 1}}},
}

func runs(numbers ...uint64) (out []task.Run) {
	for i := 0; i < len(numbers); i += 2 {
		out = append(out, task.Run{Count: numbers[i], Table: numbers[i+1]})
	}
	return out
}

// weight returns the unnormalized probability of an outcome, computed from the definition in [task.Noise].
func weight(n *task.Noise, z []uint64) uint64 {
	weight, sum, weighted, cell := uint64(1), uint64(0), int64(0), 0
	n.Each(func(_ uint64, run task.Run) {
		for range run.Count {
			table := n.Tables[run.Table]
			if n.Rest != nil && uint64(cell) == *n.Rest {
				table = []uint64{1, 1, 1, 1}
			}
			if z[cell] >= uint64(len(table)) {
				weight = 0
				return
			}
			weight *= table[z[cell]]
			sum += z[cell]
			if n.Tilt != nil {
				weighted += (int64(n.Tilt.Weights[cell]) - int64(n.Tilt.Zero)) * int64(z[cell])
			}
			cell++
		}
	})
	if n.Total != nil && sum != *n.Total {
		return 0
	}
	if n.Tilt != nil {
		d := max(weighted-int64(n.Tilt.Centre), int64(n.Tilt.Centre)-weighted)
		if d >= int64(len(n.Tilt.Factors)) {
			return 0
		}
		weight *= n.Tilt.Factors[d]
	}
	return weight
}

// TestDrawFitsItsLaw compares 10⁵ draws with the definition by a χ² test. Each comparison fails by chance with
// probability 10⁻⁷.
func TestDrawFitsItsLaw(t *testing.T) {
	src := randomizer.NewSource()
	for name, n := range laws {
		const trials, base = 100_000, 4
		outcomes := 1
		for range n.Cells {
			outcomes *= base
		}
		seen, mass, all := make([]int, outcomes), make([]float64, outcomes), 0.0
		for i := range outcomes {
			z := make([]uint64, n.Cells)
			for j, rest := 0, i; j < len(z); j++ {
				z[j] = uint64(rest % base)
				rest /= base
			}
			mass[i] = float64(weight(n, z))
			all += mass[i]
		}
		least, most := n.Support()
		law := dummies.New(n)
		for range trials {
			cells, err := law.Draw(src)
			require.NoError(t, err)
			require.GreaterOrEqual(t, uint64(len(cells)), least, name)
			require.LessOrEqual(t, uint64(len(cells)), most, name)
			at := 0
			for _, cell := range cells {
				place := 1
				for range cell {
					place *= base
				}
				at += place
			}
			seen[at]++
		}
		requireFits(t, name, seen, mass, all)
	}
}

// requireFits fails unless the counts of outcomes fit their probabilities. An outcome of probability 0 must not occur.
func requireFits(t *testing.T, name string, seen []int, mass []float64, all float64) {
	t.Helper()
	trials, square, degrees := 0, 0.0, -1.0
	for _, n := range seen {
		trials += n
	}
	for i, n := range seen {
		if mass[i] == 0 {
			require.Zero(t, n, "%s: outcome %d", name, i)
			continue
		}
		want := float64(trials) * mass[i] / all
		square += (float64(n) - want) * (float64(n) - want) / want
		degrees++
	}
	require.Less(t, square, stattest.ChiSquare(degrees, 1e-7), name)
}

// TestPoolIsUniform: kind pool must add exactly the given number of dummies, uniformly over all cells.
func TestPoolIsUniform(t *testing.T) {
	law, src := dummies.New(&task.Noise{Kind: task.NoisePool, Cells: 6, Pool: 50}), randomizer.NewSource()
	seen, mass := make([]int, 6), []float64{1, 1, 1, 1, 1, 1}
	for range 2000 {
		cells, err := law.Draw(src)
		require.NoError(t, err)
		require.Len(t, cells, 50)
		for _, cell := range cells {
			seen[cell]++
		}
	}
	requireFits(t, "pool", seen, mass, 6)
}

// TestHugeCells: a pool over 2⁵³−1 cells must not take memory for each cell.
func TestHugeCells(t *testing.T) {
	cells, err := dummies.New(&task.Noise{Kind: task.NoisePool, Cells: 1<<53 - 1, Pool: 3}).Draw(randomizer.NewSource())
	require.NoError(t, err)
	require.Len(t, cells, 3)
}

// TestUnlikelyLawsEnd: a nearly impossible total must give an error, not an endless loop.
func TestUnlikelyLawsEnd(t *testing.T) {
	n := &task.Noise{Kind: task.NoiseCells, Cells: 8, Tables: [][]uint64{{1 << 40, 1}}, Total: total(8)}
	_, err := dummies.New(n).Draw(randomizer.NewSource())
	require.ErrorIs(t, err, dummies.ErrUnlikely)
}
