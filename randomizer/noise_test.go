package randomizer_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
)

// noiseDraws returns the sample size of the tests below: 10⁶, or 10⁷ in the long form.
func noiseDraws() int {
	if stattest.Long {
		return 1e7
	}
	return 1e6
}

// noiseFalseAlarm is the largest probability that one comparison of an exact sampler with its distribution fails. This
// file has fewer than 60 comparisons. So all of them together fail by chance with a probability below 1e-6.
const noiseFalseAlarm = 1.5e-8

// matches draws a sample and reports whether it fits the distribution pmf. It compares the observed fraction of every
// value k, and of every set {0..k}, with Chernoff's bound:
//
//	Pr[fraction deviates from q to q̂ or beyond] ≤ exp(-draws·KL(q̂‖q)),
//
// with a union bound over the two sides of all these events. Chernoff's bound holds for every sample size and q.
func matches(draws int, pmf func(k int) float64, draw func() int) bool {
	const cells = 2000 // All larger values count in the last cell.
	counts := make([]int, cells+1)
	for range draws {
		k := draw()
		if k < 0 {
			return false
		}
		counts[min(k, cells)]++
	}
	limit := math.Log(4 * (cells + 1) / noiseFalseAlarm)
	below, counted := 0.0, 0
	for k := range cells + 1 {
		q := 1 - below
		if k < cells {
			q = pmf(k)
		}
		below, counted = below+q, counted+counts[k]
		if chernoff(draws, counts[k], q) > limit || chernoff(draws, counted, below) > limit {
			return false
		}
	}
	return true
}

// chernoff returns draws·KL(count/draws ‖ q), and 0 for a deviation below 1e-12, because q may be off by that much.
func chernoff(draws, count int, q float64) float64 {
	seen := float64(count) / float64(draws)
	if math.Abs(seen-q) < 1e-12 {
		return 0
	}
	q = min(max(q, 1e-300), 1-1e-16)
	kl := 0.0
	if seen > 0 {
		kl += seen * math.Log(seen/q)
	}
	if seen < 1 {
		kl += (1 - seen) * math.Log((1-seen)/(1-q))
	}
	return kl * float64(draws)
}

// decision returns the distribution of a decision that is true with probability p: 0 is false, 1 is true.
func decision(p float64) func(int) float64 {
	return func(k int) float64 { return []float64{1 - p, p, 0}[min(k, 2)] }
}

// negBinomialPMF returns the distribution with probabilities C(k+r-1, k)·(1-p)^r·p^k, where p = e^{-rate}.
func negBinomialPMF(r, rate float64) func(int) float64 {
	return func(k int) float64 {
		up, _ := math.Lgamma(float64(k) + r)
		down, _ := math.Lgamma(float64(k) + 1)
		base, _ := math.Lgamma(r)
		return math.Exp(up - down - base + r*math.Log(-math.Expm1(-rate)) - rate*float64(k))
	}
}

func poissonPMF(mean float64) func(int) float64 {
	return func(k int) float64 {
		down, _ := math.Lgamma(float64(k) + 1)
		if mean == 0 {
			return float64(1 - min(k, 1))
		}
		return math.Exp(float64(k)*math.Log(mean) - mean - down)
	}
}

// zigzag maps 0, -1, 1, -2, 2, … to 0, 1, 2, 3, 4, ….
func zigzag(k int64) int { return int(k<<1 ^ k>>63) }

func laplacePMF(rate float64) func(int) float64 {
	return func(k int) float64 {
		return math.Tanh(rate/2) * math.Exp(-rate*float64((k+1)/2))
	}
}

// jumpPMF returns the distribution of the result of [randomizer.Source.Jump] for one candidate of the measure
// e^{-rate·k}/k, k ≤ limit.
func jumpPMF(rate float64, limit int, candidates uint64) func(int) float64 {
	mass := func(k int) float64 {
		if k < 1 || limit > 0 && k > limit {
			return 0
		}
		return math.Exp(-rate*float64(k)) / float64(k) / float64(candidates)
	}
	dropped := 1.0
	for k := 1; k < 100_000; k++ {
		dropped -= mass(k)
	}
	return func(k int) float64 {
		if k == 0 {
			return dropped
		}
		return mass(k)
	}
}

func TestBernoulliExpFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, g := range []randomizer.Rational{
		rational(0, 1), rational(1, 1000), rational(1, 3), rational(1<<61-1, 1<<62), rational(1, 1), rational(3, 2),
		rational(13, 2),
	} {
		require.True(t, matches(noiseDraws(), decision(math.Exp(-g.Float64())),
			func() int { return int(bit(src.BernoulliExp(g))) }), "g = %s", g)
	}
	require.False(t, src.BernoulliExp(rational(math.MaxInt64, 1)))
	require.Panics(t, func() { src.BernoulliExp(rational(-1, 2)) })
}

func TestGeometricAndLaplaceFit(t *testing.T) {
	src := randomizer.NewSource()
	for _, rate := range []randomizer.Rational{rational(1, 100), rational(1, 3), rational(1, 1), rational(7, 4),
		rational(1<<60+1, 1<<62)} {
		require.True(t, matches(noiseDraws(), negBinomialPMF(1, rate.Float64()),
			func() int { return int(src.Geometric(rate)) }), "geometric, rate %s", rate)
		require.True(t, matches(noiseDraws(), laplacePMF(rate.Float64()),
			func() int { return zigzag(src.DiscreteLaplace(rate)) }), "Laplace, rate %s", rate)
	}
	for _, tiny := range []randomizer.Rational{randomizer.MinRate, rational(3, 1<<41+1)} {
		mean := 0.0
		for range 10_000 {
			mean += float64(src.Geometric(tiny)) * tiny.Float64() / 10_000 // Near exponential: mean 1, deviation 0.01.
		}
		require.InDelta(t, 1, mean, 0.06)
	}
	for _, bad := range []randomizer.Rational{rational(0, 1), rational(-1, 2), rational(1, 1<<40+1),
		rational(3, 1<<42)} {
		require.Panics(t, func() { src.Geometric(bad) }, bad.String())
	}
}

func TestPoissonFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, mean := range []randomizer.Rational{
		rational(0, 1), rational(1, 10_000), rational(1, 3), rational(1, 2), rational(5, 7), rational(1, 1),
		rational(10, 3), rational(9, 1),
	} {
		require.True(t, matches(noiseDraws(), poissonPMF(mean.Float64()),
			func() int { return int(src.Poisson(mean)) }), "mean %s", mean)
	}
	require.Panics(t, func() { src.Poisson(rational(-1, 2)) })
	require.Panics(t, func() { src.Poisson(rational(1<<32, 1)) })
	require.Zero(t, src.Poisson(rational(0, 1)))
}

func TestNegativeBinomialFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, c := range []struct{ r, rate randomizer.Rational }{
		{rational(1, 10_000), rational(1, 100)},
		{rational(1, 10), rational(1, 16)},
		{rational(1, 2), rational(1, 1)},
		{rational(9, 10), rational(5, 2)},
		{rational(1, 3), rational(1, 3)},
		{rational(1, 1), rational(1, 50)},
		{rational(17, 5), rational(1, 20)},
	} {
		require.True(t, matches(noiseDraws(), negBinomialPMF(c.r.Float64(), c.rate.Float64()),
			func() int { return int(src.Polya(c.r, c.rate)) }), "r = %s, rate %s", c.r, c.rate)
	}
	require.Zero(t, src.NegativeBinomial(rational(0, 1), rational(1, 2)))
	require.Panics(t, func() { src.NegativeBinomial(rational(-1, 2), rational(1, 2)) })
	require.Panics(t, func() { src.NegativeBinomial(rational(1, 1<<57), rational(1, 2)) })
}

// TestJumpsFit: the jumps that candidates become must have the distribution jumpPMF.
func TestJumpsFit(t *testing.T) {
	src := randomizer.NewSource()
	for _, c := range []struct {
		rate       randomizer.Rational
		max        uint64
		candidates uint64
	}{
		{rational(1, 100), 0, 8}, {rational(1, 3), 0, 3}, {rational(1, 1), 0, 1}, {rational(9, 4), 0, 1},
		{rational(0, 1), 1, 1}, {rational(0, 1), 20, 5}, {rational(1, 10), 7, 3}, {rational(1, 4), 30, 3},
		{rational(0, 1), 64, 7},
	} {
		jumps := randomizer.NewJumps(c.rate, c.max)
		require.Equal(t, c.candidates, jumps.Candidates(), "%+v", c)
		pmf := jumpPMF(c.rate.Float64(), int(c.max), c.candidates)
		require.True(t, matches(noiseDraws(), pmf, func() int { return int(src.Jump(jumps)) }), "%+v", c)
	}
	require.Panics(t, func() { randomizer.NewJumps(rational(0, 1), 0) })
}

// TestSuperpositionFits: in a superposition, the noise of each atom must have its own negative binomial distribution,
// and the noise of two atoms must be uncorrelated.
func TestSuperpositionFits(t *testing.T) {
	src := randomizer.NewSource()
	rates := []randomizer.Rational{rational(1, 10), rational(1, 1), rational(1, 100)}
	weights := []uint64{3, 10, 1}
	var atoms []randomizer.Atom
	for i := range rates {
		atoms = append(atoms, randomizer.Atom{Weight: weights[i], Jumps: randomizer.NewJumps(rates[i], 0)})
	}
	noise := randomizer.NewSuperposition(atoms, 20)
	draws, covariance := noiseDraws(), 0.0
	means := []float64{}
	for i := range atoms {
		means = append(means, float64(weights[i])/20/math.Expm1(rates[i].Float64()))
	}
	for i := range atoms {
		pmf := negBinomialPMF(float64(weights[i])/20, rates[i].Float64())
		require.True(t, matches(draws, pmf, func() int {
			sums := make([]uint64, len(atoms))
			src.Events(noise, func(atom int, size uint64) { sums[atom] += size })
			covariance += (float64(sums[0]) - means[0]) * (float64(sums[1]) - means[1])
			return int(sums[i])
		}), "atom %d", i)
	}
	scale := math.Sqrt(means[0] * means[1] / -math.Expm1(-0.1) / -math.Expm1(-1)) // Product of both deviations.
	require.InDelta(t, 0, covariance/float64(3*draws), 6*scale/math.Sqrt(float64(3*draws)))

	quiet := randomizer.NewSuperposition([]randomizer.Atom{{Weight: 0, Jumps: atoms[0].Jumps}}, 1)
	src.Events(quiet, func(int, uint64) { t.Fatal("a jump of weight 0") })
	require.Panics(t, func() {
		randomizer.NewSuperposition([]randomizer.Atom{{Weight: 1 << 62,
			Jumps: randomizer.NewJumps(rational(1, 100), 0)}}, 1)
	})
}

// TestWrongNoiseIsCaught: matches, which accepts the samplers, must reject plausible wrong ones.
func TestWrongNoiseIsCaught(t *testing.T) {
	src := randomizer.NewSource()
	third, tenth := rational(1, 3), rational(1, 10)
	for name, c := range map[string]struct {
		pmf  func(int) float64
		draw func() int
	}{
		"an exponent 5 % too large": {decision(math.Exp(-1.0 / 3)),
			func() int { return int(bit(src.BernoulliExp(rational(35, 100)))) }},
		"the first two terms of e^-g": {decision(math.Exp(-1.0 / 10)), func() int {
			return int(bit(!src.Bernoulli(tenth)))
		}},
		"a rate 5 % too large": {negBinomialPMF(1, 1.0/3),
			func() int { return int(src.Geometric(rational(35, 100))) }},
		"1/rate where p = e^-rate": {negBinomialPMF(1, 1.0/3),
			func() int { return countTrue(func() bool { return !src.Bernoulli(third) }) }},
		"a Laplace with two zeros": {laplacePMF(0.1),
			func() int { return zigzag(int64(1-2*int(src.Below(2))) * int64(src.Geometric(tenth))) }},
		"a mean 5 % too large": {poissonPMF(1.0 / 3), func() int { return int(src.Poisson(rational(35, 100))) }},
		"at most one Poisson event": {poissonPMF(0.01),
			func() int { return int(bit(!src.BernoulliExp(rational(1, 100)))) }},
		"NB with a smaller r": {negBinomialPMF(1.0/3, 0.1),
			func() int { return int(src.NegativeBinomial(rational(3, 10), tenth)) }},
		"NB from candidates unthinned": {negBinomialPMF(0.1, 1.0/3), func() (sum int) {
			for range src.Poisson(rational(3, 10)) {
				block := src.Below(3)
				sum += 1<<block + int(src.Below(1<<block))
			}
			return sum
		}},
		"NB cut at 50": {negBinomialPMF(0.1, 0.1),
			func() int { return min(50, int(src.NegativeBinomial(tenth, tenth))) }},
	} {
		require.False(t, matches(1e6, c.pmf, c.draw), name)
	}
}

func countTrue(f func() bool) (n int) {
	for f() {
		n++
	}
	return n
}

func BenchmarkPolyaOfOneInTenThousand(b *testing.B) {
	src := randomizer.NewSource()
	r, rate := rational(1, 10_000), rational(1, 1000)
	for b.Loop() {
		src.Polya(r, rate)
	}
}

func BenchmarkGeometric(b *testing.B) {
	src := randomizer.NewSource()
	rate := rational(1, 1000)
	for b.Loop() {
		src.Geometric(rate)
	}
}

func TestBinomialFits(t *testing.T) {
	src := randomizer.NewSource()
	for _, c := range []struct {
		n uint64
		p randomizer.Rational
	}{{1, rational(3, 8)}, {5, rational(1, 2)}, {64, rational(1, 32)}, {200, rational(5, 64)},
		{1000, rational(1<<40+1, 1<<50)}, {3, rational(1<<62-1, 1<<62)}} {
		logs := func(v float64) float64 { g, _ := math.Lgamma(v + 1); return g }
		n, p := float64(c.n), c.p.Float64()
		pmf := func(k int) float64 {
			if uint64(k) > c.n {
				return 0
			}
			x := float64(k)
			return math.Exp(logs(n) - logs(x) - logs(n-x) + x*math.Log(p) + (n-x)*math.Log1p(-p))
		}
		require.True(t, matches(noiseDraws(), pmf, func() int { return int(src.Binomial(c.n, c.p)) }), "%+v", c)
	}
	require.EqualValues(t, 7, src.Binomial(7, rational(1, 1)))
	require.Zero(t, src.Binomial(7, rational(0, 1)))
	require.Panics(t, func() { src.Binomial(1, rational(1, 3)) })
}
