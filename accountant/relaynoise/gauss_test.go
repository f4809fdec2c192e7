package relaynoise_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// gaussTilt returns a Gaussian tilt over levels 0..k with the standard deviations sigma of the cells up to the middle
// one and spread of the factors. Its tables end at cut standard deviations.
func gaussTilt(k uint64, sigma []float64, spread, cut float64) *task.Noise {
	n := &task.Noise{Kind: task.NoiseCells, Cells: k + 1, Tilt: &task.Tilt{Zero: k / 2}}
	for _, s := range sigma {
		n.Tables = append(n.Tables, relaynoise.Gaussian(s, int(cut*s)))
	}
	for j := range k + 1 {
		n.Tilt.Weights = append(n.Tilt.Weights, j)
		n.Which = append(n.Which, task.Run{Count: 1, Table: min(j, k-j)})
	}
	for x := 0; float64(x) <= cut*spread+float64(k); x++ {
		n.Tilt.Factors = append(n.Tilt.Factors, uint64(math.Exp(-float64(x*x)/(2*spread*spread))*(1<<52))+1)
	}
	return n
}

// TestGaussianTiltsEqualEnumeration enumerates Gaussian tilts of two to five levels and requires that the bound is not
// below δ at any ε, and not far above where the cuts do not dominate.
func TestGaussianTiltsEqualEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 1))
	for i := range 12 {
		k := uint64(2 + 2*(i%8/7)) // mostly 2, sometimes 4
		sigma := []float64{}
		for range k/2 + 1 {
			sigma = append(sigma, 1.4+(3.2-float64(k)/2)*rng.Float64())
		}
		n := gaussTilt(k, sigma, 2+6*rng.Float64(), 2.6+1.5*rng.Float64()-float64(k)/4)
		if i%3 == 1 { // one cell always differs
			n.Tables[0] = relaynoise.Gaussian(sigma[0], 5)
		}
		curve, err := relaynoise.New(n)
		require.NoError(t, err)
		require.Zero(t, curve.Ratio(), "not taken for Gaussian")
		for _, eps := range []float64{0, .05, .2, .5, 1, 2, 3.5} {
			want := enumerated(n, eps)
			require.GreaterOrEqual(t, curve.Delta(eps), want, "%d at %v", i, eps)
		}
	}
	n := gaussTilt(2, []float64{2.6, 3}, 6, 4.4)
	curve, err := relaynoise.New(n)
	require.NoError(t, err)
	require.Less(t, curve.Delta(.3), 1.25*enumerated(n, .3))
	law := curve.Law()
	for _, eps := range []float64{.05, .3, 1} {
		require.GreaterOrEqual(t, law.Delta(eps), enumerated(n, eps))
		require.Less(t, law.Delta(eps), 1.01*curve.Delta(eps))
		require.GreaterOrEqual(t, curve.Local(.2).Delta(eps), randomized(n, .2, eps))
	}
}

// TestGaussianTiltsOverEpochs compares (7) of the proof with the exact composition of two epochs, by enumeration of one
// epoch's privacy losses.
func TestGaussianTiltsOverEpochs(t *testing.T) {
	n := gaussTilt(2, []float64{2, 2.2}, 5, 3)
	curve, err := relaynoise.New(n)
	require.NoError(t, err)
	law, base := states(n)
	for _, pair := range [][2]int{{1, base}, {1, base * base}, {base, base * base}} {
		type outcome struct{ p, q float64 }
		var one []outcome
		for key, p := range law {
			one = append(one, outcome{p, law[key+pair[0]-pair[1]]})
		}
		slices.SortFunc(one, func(a, b outcome) int { return int(math.Copysign(1, b.p*a.q-a.p*b.q)) })
		for _, eps := range []float64{.3, 1, 2} {
			sum := 0.0
			for _, a := range one {
				for _, b := range one {
					if x := a.p*b.p - math.Exp(eps)*a.q*b.q; x > 0 {
						sum += x
					}
				}
			}
			two := relaynoise.Target{Epsilon: eps, Delta: .1, Epochs: 2}
			require.GreaterOrEqual(t, two.Total(curve), sum, "%v at %v", pair, eps)
		}
	}
}

// TestLongSums checks the errors and dummies of sums over many epochs, with one relay, and that less noise is refused.
func TestLongSums(t *testing.T) {
	for _, c := range []struct {
		target           relaynoise.Target
		users            uint64
		dummies, largest float64
	}{
		{relaynoise.Target{Epsilon: 3, Delta: 1e-5, Epochs: 30}, 1e3, 1000, 8.5},
		{relaynoise.Target{Epsilon: 3, Delta: 1e-5, Epochs: 30}, 1e4, 1700, 9.1},
		{relaynoise.Target{Epsilon: 3, Delta: 1e-5, Epochs: 365}, 1e4, 1200, 31.5},
		{relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 365}, 1e4, 2100, 88},
	} {
		k, n, err := relaynoise.Sum(c.users, 1, c.target, c.dummies)
		laws := requireKeeps(t, n, err, c.target)
		require.LessOrEqual(t, laws.Dummies(), c.dummies, "%+v", c)
		found := math.Sqrt((laws.Sum.Variance() + float64(c.users)/4) / float64(k*k))
		require.LessOrEqual(t, found, c.largest, "%+v", c)
		require.InDelta(t, 0, laws.Sum.Mean(), 1e-6)
	}
}

// TestGaussianTiltsThatAreNone checks laws that Theorem 3 does not cover: they get the bound of Theorem 2, or none.
func TestGaussianTiltsThatAreNone(t *testing.T) {
	good := func() *task.Noise { return gaussTilt(2, []float64{9, 10}, 30, 6) }
	curve, err := relaynoise.New(good())
	require.NoError(t, err)
	require.Zero(t, curve.Ratio())
	bounded := 0
	for name, change := range map[string]func(*task.Noise){
		"one weight doubled":  func(n *task.Noise) { n.Tables[1][20] *= 2 },
		"an even table":       func(n *task.Noise) { n.Tables[0] = n.Tables[0][1:] },
		"one factor doubled":  func(n *task.Noise) { n.Tilt.Factors[50] = n.Tilt.Factors[49] },
		"another centre":      func(n *task.Noise) { n.Tilt.Centre = 1 },
		"a narrow cell":       func(n *task.Noise) { n.Tables[0] = relaynoise.Gaussian(1, 7) },
		"a narrow factor":     func(n *task.Noise) { n.Tilt.Factors = []uint64{1 << 50, 1 << 49, 1 << 46, 1 << 41} },
		"a flat factor":       func(n *task.Noise) { n.Tilt.Factors = slices.Repeat([]uint64{5}, 400) },
		"a uniform cell":      func(n *task.Noise) { n.Tables[0] = slices.Repeat([]uint64{5}, 101) },
		"factors of one":      func(n *task.Noise) { n.Tilt.Factors = []uint64{1} },
		"a table of one":      func(n *task.Noise) { n.Tables[0] = []uint64{1} },
		"weights out of line": func(n *task.Noise) { n.Tilt.Zero = 0 },
	} {
		n := good()
		change(n)
		if curve, err = relaynoise.New(n); err == nil {
			bounded++
			require.True(t, curve.Ratio() > 0 || curve.Delta(1) >= .1, name)
		}
	}
	require.Greater(t, bounded, 4, "most of these laws have some bound")
	// Nearly flat tables count as very wide Gaussians. The variance under the tilt is then a difference of which
	// rounding leaves little.
	for _, c := range []struct {
		half, more, weight uint64
		spread             float64
	}{{70, 10, 1, 13.5}, {75, 11, 1, 13.5}, {100, 11, 1, 19.5}, {50, 10, 7, 77}, {75, 11, 7, 108.5}} {
		flat := slices.Repeat([]uint64{1 << 52}, int(2*c.half+1))
		flat[c.half] += c.more
		n := &task.Noise{Kind: task.NoiseCells, Cells: 2, Which: []task.Run{{Count: 1, Table: 0}, {Count: 1, Table: 1}},
			Tables: [][]uint64{relaynoise.Gaussian(12, 90), flat},
			Tilt:   &task.Tilt{Zero: 5, Centre: c.half * c.weight, Weights: []uint64{5, 5 + c.weight}}}
		for x := 0.; x <= math.Floor(7.2*c.spread); x++ {
			factor := uint64(math.Ceil(math.Exp(-x*x/(2*c.spread*c.spread)) * (1 << 52)))
			n.Tilt.Factors = append(n.Tilt.Factors, factor)
		}
		curve, err = relaynoise.New(n)
		require.NoError(t, err, "%+v: Theorem 2 bounds it", c)
		require.GreaterOrEqual(t, curve.Delta(2), enumerated(n, 2), "%+v", c)
	}
	target := relaynoise.Target{Epsilon: 3, Delta: 1e-5, Epochs: 30}
	k, n, err := relaynoise.Sum(1e4, 1, target, 0)
	requireKeeps(t, n, err, target)
	for i, table := range n.Tables { // all widths × .93
		c := len(table) / 2
		sigma := float64(c) / math.Sqrt(2*math.Log(float64(table[c])/float64(table[0])))
		n.Tables[i] = relaynoise.Gaussian(.93*sigma, c)
	}
	curve, err = relaynoise.New(n)
	require.NoError(t, err)
	require.Greater(t, target.Total(curve), 2*target.Delta, "k = %d", k)
}
