package relaynoise_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// requireKeeps requires that the certificate of a search's result meets the target. It returns the laws of the dummies.
func requireKeeps(t *testing.T, n *task.Noise, err error, claim relaynoise.Target) *relaynoise.Laws {
	t.Helper()
	require.NoError(t, err)
	curve, err := relaynoise.New(n)
	require.NoError(t, err)
	require.LessOrEqual(t, claim.Total(curve), claim.Delta)
	m, err := relaynoise.NewLaws(n)
	require.NoError(t, err)
	require.Len(t, m.Cells, int(n.Cells))
	return m
}

// TestSearchesFindWhatIsPromised checks that the searches find laws with the documented errors and numbers of dummies,
// per relay and batch, for several targets.
func TestSearchesFindWhatIsPromised(t *testing.T) {
	day := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 1}
	for cells, want := range map[uint64]struct{ deviation, dummies float64 }{
		2: {1.358, 28}, 4: {2.01, 64}, 16: {2.60, 16 * 22}, 64: {2.75, 64 * 24},
	} {
		n, err := relaynoise.FixedTotal(cells, day)
		m := requireKeeps(t, n, err, day)
		require.LessOrEqual(t, math.Sqrt(m.Cells[0].Variance()), want.deviation, "%d cells", cells)
		require.LessOrEqual(t, float64(*n.Total), want.dummies, "%d cells", cells)
		require.InDelta(t, float64(*n.Total), m.Cells[0].Mean()*float64(cells), 1e-6)
	}
	for _, c := range []struct {
		claim              relaynoise.Target
		deviation, dummies float64 // Per cell.
	}{
		{day, 4 / math.Sqrt2, 25.5},
		{relaynoise.Target{Epsilon: 5.11, Delta: 3e-5, Epochs: 30}, 6.6, 37},
		{relaynoise.Target{Epsilon: 3, Delta: 1e-5, Epochs: 365}, 39, 230},
	} {
		n, err := relaynoise.Independent(16, c.claim, 0)
		m := requireKeeps(t, n, err, c.claim)
		require.LessOrEqual(t, math.Sqrt(m.Cells[0].Variance()), c.deviation, "%v", c.claim)
		require.LessOrEqual(t, m.Cells[0].Mean(), c.dummies, "%v", c.claim)
	}
	for k, dummies := range map[uint64]float64{34: 1600, 100: 4500, 250: 11000} {
		n, err := relaynoise.Levels(k, .8, day)
		m := requireKeeps(t, n, err, day)
		require.LessOrEqual(t, math.Sqrt(m.Sum.Variance())/float64(k), 1.78, "%d levels", k)
		require.LessOrEqual(t, m.Dummies(), dummies, "%d levels", k)
	}
}

// TestSums checks the error and the dummies of a sum to which two relays add dummies. Each client sends one slot.
func TestSums(t *testing.T) {
	day := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 1}
	for _, c := range []struct {
		users              uint64
		dummies, deviation float64
	}{{1e4, 1600, 2.9}, {1e5, 1600, 5.3}, {1e5, 4500, 3}, {1e6, 11000, 3.3}} {
		k, n, err := relaynoise.Sum(c.users, 2, day, c.dummies)
		laws := requireKeeps(t, n, err, day)
		require.LessOrEqual(t, laws.Dummies(), c.dummies)
		found := math.Sqrt(2*laws.Sum.Variance()/float64(k*k) + float64(c.users)/float64(4*k*k))
		require.LessOrEqual(t, found, c.deviation, "%v: k = %d", c, k)
	}
	k, n, err := relaynoise.Sum(1e4, 2, day, 0)
	laws := requireKeeps(t, n, err, day)
	require.LessOrEqual(t, math.Sqrt(2*laws.Sum.Variance()/float64(k*k)+1e4/float64(4*k*k)), 1.21*2)
	require.LessOrEqual(t, laws.Dummies(), 5200.)
	half := relaynoise.Target{Epsilon: .5, Delta: 1e-6, Epochs: 1}
	k, n, err = relaynoise.Sum(1000, 2, half, 0) // Its first choice is too slow for clients to check.
	laws = requireKeeps(t, n, err, half)
	require.LessOrEqual(t, math.Sqrt(2*laws.Sum.Variance()/float64(k*k)+1000/float64(4*k*k)), 1.35*4)
	_, _, err = relaynoise.Sum(1e4, 2, day, 10)
	require.ErrorContains(t, err, "dummies")
}

// TestLessNoiseIsCaught weakens the found noise slightly: a fall steeper by a tenth, a peak one dummy lower, a cell
// with one dummy less. Each must exceed the target, which shows that the searches leave no slack that could hide an
// error.
func TestLessNoiseIsCaught(t *testing.T) {
	day := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 1}
	total := uint64(14 * 2)
	faulty := map[string]*task.Noise{
		"fall": {Kind: task.NoiseCells, Cells: 16, Tables: [][]uint64{relaynoise.Laplace(.5, .55, 25, 60)}},
		"peak": {Kind: task.NoiseCells, Cells: 16, Tables: [][]uint64{relaynoise.Laplace(.5, .5, 24, 60)}},
		"total": {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{relaynoise.Laplace(.5, .55, 14, 42)},
			Total: &total},
		"cell": {Kind: task.NoiseCells, Cells: 16, Which: []task.Run{{Count: 15, Table: 0}, {Count: 1, Table: 1}},
			Tables: [][]uint64{relaynoise.Laplace(.5, .5, 25, 60), {1}}},
	}
	for name, n := range faulty {
		curve, err := relaynoise.New(n)
		require.NoError(t, err, name)
		require.Greater(t, day.Total(curve), day.Delta, name)
	}
	n, err := relaynoise.Levels(34, .8, day)
	require.NoError(t, err)
	for i := range n.Tables[3] {
		n.Tables[3][i] = n.Tables[3][min(i+1, len(n.Tables[3])-1)] // one dummy less
	}
	curve, err := relaynoise.New(n)
	require.NoError(t, err)
	require.Greater(t, day.Total(curve), day.Delta)
}

// TestLawsEqualEnumeration compares the means, the variances and the variance of the weighted sum with enumeration.
func TestLawsEqualEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range 60 {
		n := &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{twoSided(1, .7, 2, 4)}}
		total := uint64(3 + rng.IntN(5))
		switch i % 3 {
		case 1:
			n.Total = &total
		case 2:
			n.Tilt = &task.Tilt{Centre: 6 + total, Weights: []uint64{1, 2, 4}, Factors: factors(.1+rng.Float64(), 12)}
		}
		m, err := relaynoise.NewLaws(n)
		require.NoError(t, err)
		law, base := states(n)
		var mean, square [3]float64
		var sum, sums float64
		for key, p := range law {
			weighted := 0.0
			for j := range mean {
				z := float64(key % base)
				key /= base
				mean[j], square[j] = mean[j]+p*z, square[j]+p*z*z
				if n.Tilt != nil {
					weighted += z * float64(n.Tilt.Weights[j])
				}
			}
			sum, sums = sum+p*weighted, sums+p*weighted*weighted
		}
		for j := range mean {
			require.InDelta(t, mean[j], m.Cells[j].Mean(), 1e-9)
			require.InDelta(t, square[j]-mean[j]*mean[j], m.Cells[j].Variance(), 1e-8)
		}
		if n.Tilt != nil {
			require.InDelta(t, sum, m.Sum.Mean(), 1e-8)
			require.InDelta(t, sums-sum*sum, m.Sum.Variance(), 1e-7)
		}
	}
}

// TestRefusals checks that noise without a certificate and impossible targets are errors.
func TestRefusals(t *testing.T) {
	one, total := [][]uint64{{1, 2, 1}}, uint64(2)
	for name, n := range map[string]*task.Noise{
		"pool":       {Kind: task.NoisePool, Cells: 4, Pool: 9},
		"at least 2": {Kind: task.NoiseCells, Cells: 1, Tables: one},
		"tilt or a total": {Kind: task.NoiseCells, Cells: 2, Tables: one, Total: &total,
			Tilt: &task.Tilt{Weights: []uint64{1, 1}, Factors: []uint64{1}}},
		"weights above 0": {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1, 0, 1}},
			Tilt: &task.Tilt{Weights: []uint64{1, 1}, Factors: []uint64{1}}},
		"falling": {Kind: task.NoiseCells, Cells: 2, Tables: one,
			Tilt: &task.Tilt{Weights: []uint64{1, 1}, Factors: []uint64{1, 2}}},
		"want at most 1073741824": {Kind: task.NoiseCells, Cells: 2, Tables: one,
			Tilt: &task.Tilt{Weights: []uint64{1, 1 << 40}, Factors: []uint64{1}}},
		"can check": {Kind: task.NoiseCells, Cells: 2, Tables: one,
			Tilt: &task.Tilt{Weights: []uint64{1, 1 << 30}, Factors: []uint64{1}}},
		"one, with a fixed total": {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1}, {1, 1}},
			Which: []task.Run{{Count: 1, Table: 0}, {Count: 1, Table: 1}}, Total: &total},
		"1048576": {Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{make([]uint64, 1100), make([]uint64, 1100)},
			Which: []task.Run{{Count: 1, Table: 0}, {Count: 1, Table: 1}}},
	} {
		_, err := relaynoise.New(n)
		require.ErrorContains(t, err, name)
	}
	for _, claim := range []relaynoise.Target{
		{Epsilon: 0, Delta: 1e-6, Epochs: 1}, {Epsilon: math.NaN(), Delta: 1e-6, Epochs: 1},
		{Epsilon: 1, Delta: 0, Epochs: 1}, {Epsilon: 1, Delta: 1, Epochs: 1}, {Epsilon: 1, Delta: 1e-6, Epochs: 0},
	} {
		_, err := relaynoise.Independent(4, claim, 0)
		require.Error(t, err)
		_, err = relaynoise.FixedTotal(4, claim)
		require.Error(t, err)
		_, err = relaynoise.Levels(4, .5, claim)
		require.Error(t, err)
	}
	day := relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 1}
	_, err := relaynoise.Independent(4, day, 10)
	require.ErrorContains(t, err, "dummies")
	_, err = relaynoise.Levels(34, 1, day)
	require.ErrorContains(t, err, "theta")
}

// TestSearchOfExtremeTargets: a search must end within seconds, with a law that meets its target or with an error, also
// if the target is far from any that a client could check. Its tables would have 10⁹ weights and more.
func TestSearchOfExtremeTargets(t *testing.T) {
	for _, target := range []relaynoise.Target{
		{Epsilon: 1e-9, Delta: 1e-6, Epochs: 1}, {Epsilon: 1e-6, Delta: .5, Epochs: 1},
		{Epsilon: 1e-6, Delta: 1e-100, Epochs: 1}, {Epsilon: 1e-309, Delta: 1e-6, Epochs: 1},
		{Epsilon: 1, Delta: 1e-100, Epochs: 1}, {Epsilon: 5e-324, Delta: 1e-280, Epochs: 365},
	} {
		independent, failed := relaynoise.Independent(2, target, 0)
		fixed, alsoFailed := relaynoise.FixedTotal(2, target)
		_, sum, sumFailed := relaynoise.Sum(1000, 2, target, 0)
		for n, err := range map[*task.Noise]error{independent: failed, fixed: alsoFailed, sum: sumFailed} {
			if err != nil {
				continue
			}
			curve, err := relaynoise.New(n)
			require.NoError(t, err)
			require.LessOrEqual(t, target.Total(curve), target.Delta, "%+v", target)
		}
		if target.Epsilon < 1e-3 && target.Delta < .1 {
			require.ErrorContains(t, failed, "larger epsilon", "%+v", target)
		}
	}
	_, err := relaynoise.Levels(12, 9.6, relaynoise.Target{Epsilon: 64, Delta: 1e-100, Epochs: 1})
	require.ErrorContains(t, err, "larger epsilon or delta")
}

// TestQuickBoundIsBelowTheCurve: the searches must skip no law that meets the target, also if it only just does. They
// must skip laws that are far from it.
func TestQuickBoundIsBelowTheCurve(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 6))
	skipped := 0
	for range 400 {
		table := make([]uint64, 2+r.IntN(30))
		for z := range table {
			table[z] = 1 + r.Uint64N(1<<r.IntN(40))
		}
		if r.IntN(2) == 0 {
			table = relaynoise.Gaussian(.5+5*r.Float64(), 1+r.IntN(12))
		}
		curve, err := relaynoise.New(&task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{table}})
		require.NoError(t, err)
		eps := math.Exp2(8*r.Float64() - 6)
		if delta := curve.Delta(eps); delta < 1 {
			require.False(t, relaynoise.Target{Epsilon: eps, Delta: delta, Epochs: 1}.ExceededByOne(table), "%v", table)
			if (relaynoise.Target{Epsilon: eps, Delta: delta / 3, Epochs: 1}).ExceededByOne(table) {
				skipped++
			}
		}
	}
	require.Greater(t, skipped, 100)
}
