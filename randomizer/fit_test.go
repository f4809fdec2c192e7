package randomizer_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
)

// falseAlarm is the probability that one goodness-of-fit test rejects an exact sampler. The package has fewer than 40
// such tests with fresh randomness. So a run of all of them fails by chance with a probability below 1e-6.
const falseAlarm = 2.5e-8

// pValue is the probability that a χ² variable with df degrees of freedom is x or more: the upper regularized
// incomplete gamma function Q(df/2, x/2). It uses the series below a+1 and the continued fraction (modified Lentz)
// above.
func pValue(x float64, df int) float64 {
	a, x := float64(df)/2, x/2
	lgamma, _ := math.Lgamma(a)
	front := math.Exp(a*math.Log(x) - x - lgamma)
	if x < a+1 {
		term := 1 / a
		sum := term
		for n := 1.0; term > sum*1e-17; n++ {
			term *= x / (a + n)
			sum += term
		}
		return 1 - front*sum
	}
	b := x + 1 - a
	c, d := math.Inf(1), 1/b
	h := d
	for n := 1.0; n < 1e5; n++ {
		an := -n * (n - a)
		b += 2
		d = 1 / (an*d + b)
		c = b + an/c
		h *= d * c
		if math.Abs(d*c-1) < 1e-16 {
			break
		}
	}
	return front * h
}

func TestPValue(t *testing.T) {
	// Known values: Q(1/2, x/2) = erfc(√(x/2)), Q(1, x/2) = e^(-x/2), and χ² quantiles from tables.
	for _, x := range []float64{0.1, 1, 5, 20, 31} {
		require.InEpsilon(t, math.Erfc(math.Sqrt(x/2)), pValue(x, 1), 1e-10)
		require.InEpsilon(t, math.Exp(-x/2), pValue(x, 2), 1e-10)
	}
	require.InDelta(t, 0.05, pValue(18.307, 10), 1e-5)
	require.InDelta(t, 0.001, pValue(149.449, 100), 1e-6)
}

// quantile returns the value that a χ² variable with df degrees of freedom exceeds with
// probability falseAlarm, by bisection.
func quantile(df int) float64 {
	lo, hi := 0.0, 1000+10*float64(df)
	for hi-lo > 1e-9*hi {
		if mid := (lo + hi) / 2; pValue(mid, df) > falseAlarm {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// fits draws a sample and reports whether it fits the probabilities p: whether Pearson's χ² stays below its quantile.
// Each cell must expect at least 100 of the samples, so that χ² is close to its limit distribution even at such a small
// falseAlarm. An outcome of probability zero does not fit.
func fits(t *testing.T, samples int, p []float64, draw func() uint64) bool {
	t.Helper()
	counts := make([]float64, len(p))
	for range samples {
		counts[draw()]++
	}
	chi2, cells := 0.0, 0
	for i, prob := range p {
		expected := prob * float64(samples)
		if prob == 0 {
			if counts[i] > 0 {
				return false
			}
			continue
		}
		require.GreaterOrEqual(t, expected, 100.0, "too few samples for cell %d", i)
		chi2 += (counts[i] - expected) * (counts[i] - expected) / expected
		cells++
	}
	if cells == 1 {
		return true
	}
	return chi2 <= quantile(cells-1)
}

func uniform(n int) []float64 {
	p := make([]float64, n)
	for i := range p {
		p[i] = 1 / float64(n)
	}
	return p
}

// samples is the sample size. With 200,000, a cell of probability 1/10 that is off by 1/60 of this value is noticed.
const samples = 200_000

func TestBelowFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, n := range []uint64{1, 2, 3, 5, 7, 8, 10, 100, 255, 256, 257, 1000} {
		require.True(t, fits(t, samples, uniform(int(n)), func() uint64 { return src.Below(n) }), "n = %d", n)
	}
	// For large n, the test groups values into cells of equal probability.
	for _, n := range []uint64{3 << 62, 3 << 40, 1<<63 - 1 - (1<<63-1)%7} {
		cells := uint64(3)
		if n%7 == 0 {
			cells = 7
		}
		require.True(t, fits(t, samples, uniform(int(cells)), func() uint64 { return src.Below(n) / (n / cells) }),
			"n = %d", n)
	}
}

// TestBiasIsCaught: the goodness-of-fit test must reject biased variants of Below. The least biased variant is a byte
// modulo 10, whose Σ(p-1/10)²/(1/10) is 0.00037. A million samples then shift χ² by 366, eight of its standard
// deviations beyond the quantile.
func TestBiasIsCaught(t *testing.T) {
	src := randomizer.NewSource()
	for name, c := range map[string]struct {
		n, cells uint64
		draw     func(n uint64) uint64
	}{
		"a byte modulo 10":           {10, 10, func(n uint64) uint64 { return src.Uint64() & 0xff % n }},
		"a byte modulo 100":          {100, 100, func(n uint64) uint64 { return src.Uint64() & 0xff % n }},
		"masked bits modulo 5":       {5, 5, func(n uint64) uint64 { return src.Uint64() & 7 % n }},
		"64 bits modulo 3·2⁶²":       {3 << 62, 3, func(n uint64) uint64 { return src.Uint64() % n }},
		"redrawn once, then modulo":  {5, 5, func(n uint64) uint64 { return onceThenModulo(src, n) }},
		"the largest never returned": {256, 256, func(n uint64) uint64 { return src.Below(n - 1) }},
	} {
		require.False(t, fits(t, 1_000_000, uniform(int(c.cells)),
			func() uint64 { return c.draw(c.n) / (c.n / c.cells) }), name)
	}
}

func onceThenModulo(src *randomizer.Source, n uint64) uint64 {
	if v := src.Uint64() & 7; v < n {
		return v
	}
	return src.Uint64() & 7 % n
}

func rational(num int64, den uint64) randomizer.Rational { return randomizer.NewRational(num, den) }

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func TestBernoulliFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, p := range []randomizer.Rational{
		rational(0, 1), rational(1, 1), rational(1, 2), rational(1, 3), rational(2, 3), rational(1, 1000),
		rational(355, 452), rational(1<<52+1, 1<<55), rational(1<<62, 1<<63-1),
	} {
		f := p.Float64()
		require.True(t, fits(t, samples, []float64{1 - f, f}, func() uint64 { return bit(src.Bernoulli(p)) }),
			"p = %s", p)
	}
}

func TestRandomizedResponseFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, c := range []struct {
		x, k  uint64
		gamma randomizer.Rational
	}{{0, 2, rational(1, 4)}, {3, 4, rational(1, 3)}, {2, 5, rational(7, 8)}, {16, 17, rational(1, 2)}} {
		gamma, k := c.gamma.Float64(), float64(c.k)
		p := make([]float64, c.k)
		for y := range p {
			p[y] = gamma / k
		}
		p[c.x] += 1 - gamma
		require.True(t, fits(t, samples, p, func() uint64 { return src.RandomizedResponse(c.x, c.k, c.gamma) }), "%+v",
			c)
	}
}

func TestRoundFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, c := range []struct {
		x float64
		k uint64
	}{{0, 1}, {1, 1}, {0.3, 1}, {0.33, 10}, {0.999, 100}, {0.5, 3}, {1.0 / 3, 65536}} {
		product := new(big.Float).Mul(big.NewFloat(c.x), new(big.Float).SetUint64(c.k))
		whole, _ := product.Uint64()
		frac, _ := new(big.Float).Sub(product, new(big.Float).SetUint64(whole)).Float64()
		p := []float64{1 - frac, frac}
		require.True(t, fits(t, samples, p, func() uint64 { return src.Round(randomizer.Fixed(c.x), c.k) - whole }),
			"%+v", c)
	}
}
