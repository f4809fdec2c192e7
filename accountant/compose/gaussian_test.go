package compose

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGaussianDelta(t *testing.T) {
	delta, slope := GaussianDelta(0.236704*0.236704, 1)
	require.InEpsilon(t, 1e-6, delta, 0.01)
	more, _ := GaussianDelta(0.236704*0.236704*(1+1e-6), 1)
	require.InEpsilon(t, slope, math.Log(more/delta)/(0.236704*0.236704*1e-6), 1e-4)

	// Here δ is a 50000th of the two terms whose difference it is. The value is 15 digits computed by mpmath.
	delta, _ = GaussianDelta(1.9683000000000005e-7, 0.01)
	require.GreaterOrEqual(t, delta, 1.65746229216887e-117)
	require.InEpsilon(t, 1.65746229216887e-117, delta, 1e-6)
	delta, slope = GaussianDelta(1e-8, 0.01)
	require.Equal(t, 1e-290, delta)
	require.True(t, math.IsNaN(slope))
}

// ln δ must lie below all its tangents, for a grid of μ² and a grid of tangent points.
func TestGaussianDeltaIsLogConcave(t *testing.T) {
	for _, eps := range []float64{0, 0.01, 1, 8} {
		for at := 1e-3; at < 100; at *= 1.7 {
			delta, slope := GaussianDelta(at, eps)
			for other := 1e-3; other < 100; other *= 1.3 {
				d, _ := GaussianDelta(other, eps)
				if delta > 1e-200 && d > 1e-200 {
					require.LessOrEqual(t, math.Log(d), math.Log(delta)+slope*(other-at)+1e-6, "%g: %g from %g", eps,
						other, at)
				}
			}
		}
	}
}

// At every shift and ε, a counter's divergence must be at most the Gaussian's plus the missed probability. The rate
// must be close to the Gaussian limit, and one lower by a hundredth must fail.
func TestRateDominates(t *testing.T) {
	for _, c := range []struct {
		n     uint64
		p     float64
		shift int
		loose float64
	}{{40, 0.5, 3, 2}, {400, 0.5, 8, 1.05}, {400, 0.1, 5, 2}, {20_000, 0.5, 11, 1.001}, {20_000, 0.15, 11, 1.1},
		{100_000_000, 0.2, 700, 1.01}} {
		b := NewBinomial(c.n, c.p)
		eta, missed := b.rate(uint64(c.shift), 1e-9)
		require.Less(t, eta*math.Sqrt(b.Variance()), c.loose)
		require.Greater(t, eta*math.Sqrt(b.Variance()), 1.0)
		broken := 0
		for _, v := range []int{1, 2, c.shift} {
			for _, down := range []bool{false, true} {
				for _, eps := range []float64{0, 0.1, 0.5, 1, 2} {
					got := b.shifted(v, down, eps)
					bound, _ := GaussianDelta(math.Pow(eta*float64(v), 2), eps)
					require.LessOrEqual(t, got, bound+missed, "%v, shift %d", c, v)
					if less, _ := GaussianDelta(math.Pow(0.95*eta/c.loose*float64(v), 2), eps); got > less+missed {
						broken++
					}
				}
			}
		}
		require.Positive(t, broken)
	}
}

// rate calls Rates with one miss.
func (b *Binomial) rate(shift uint64, miss float64) (eta, missed float64) {
	one := b.Rates(shift, []float64{miss})[0]
	return one.Eta, one.Missed
}

// shifted returns Σ (b(y) − e^ε·b(y∓v))₊.
func (b *Binomial) shifted(v int, down bool, eps float64) (delta float64) {
	if down {
		v = -v
	}
	for i, p := range b.masses {
		q := 0.0
		if j := i - v; j >= 0 && j < len(b.masses) {
			q = b.masses[j]
		}
		delta += math.Max(0, p-math.Exp(eps)*q)
	}
	return delta
}

func TestTooLittleNoiseHasNoRate(t *testing.T) {
	eta, missed := NewBinomial(4, 0.5).rate(3, 0.1)
	require.True(t, math.IsInf(eta, 1))
	require.Equal(t, 1.0, missed)
}

// In the far tails the search for a score starts far from it. It must still find rates that do not fall.
func TestRateFarOut(t *testing.T) {
	b, last := NewBinomial(200_000, 0.5), 0.0
	misses := []float64{1e-6, 1e-15, 1e-20, 1e-35}
	all := b.Rates(30, misses)
	for k, miss := range misses {
		eta, missed := b.rate(30, miss)
		require.InEpsilon(t, eta, all[k].Eta, 1e-9)
		require.Equal(t, missed, all[k].Missed)
		require.LessOrEqual(t, missed, miss*(1+1e-6))
		require.Greater(t, eta, last)
		require.Less(t, eta*math.Sqrt(b.Variance()), 1.001)
		last = eta
	}
}
