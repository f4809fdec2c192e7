package compose_test

import (
	"math"
	"math/cmplx"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// blankets is k-ary randomized response calibrated to (eps, 1e-6) under a rule.
type blankets struct {
	rule     accountant.Rule
	k, users uint64
	eps      float64
}

func (r blankets) gamma(t *testing.T) float64 {
	num, den, err := accountant.KRRGamma(r.rule, r.k, r.users, r.eps, 1e-6)
	require.NoError(t, err)
	return float64(num) / float64(den)
}

func (r blankets) law(t *testing.T) *compose.Law {
	law, err := compose.KRRLaw(r.rule, r.k, r.gamma(t), r.users)
	require.NoError(t, err)
	return law
}

// curve returns the rule's curve, at any ε.
func (r blankets) curve(t *testing.T, rule accountant.Rule) func(eps float64) float64 {
	gamma := r.gamma(t)
	forward := func(eps float64) float64 {
		delta, err := accountant.KRRDelta(rule, r.k, gamma, r.users, eps)
		require.NoError(t, err)
		return delta
	}
	return func(eps float64) float64 {
		if eps < 0 {
			return -math.Expm1(eps) + math.Exp(eps)*forward(-eps)
		}
		return forward(eps)
	}
}

var responses = []blankets{
	{accountant.Exact, 16, 10_000, 1},
	{accountant.Exact, 16, 10_000, .1},
	{accountant.Exact, 3, 1000, 1},
	{accountant.Exact, 3, 50, 2},
	{accountant.Exact, 100, 1000, 1},
	{accountant.Exact, 2, 1000, 1},
	{accountant.Exact, 4, 1_000_000_000, .01},
	{accountant.Exact, 256, 1_000_000_000, 2},
	{accountant.Exact, 1 << 20, 1_000_000, .5},
	{accountant.Others, 2, 1000, 1},
	{accountant.Others, 2, 10_000, 1},
	{accountant.Others, 2, 1_000_000, .1},
	{accountant.Others, 2, 5, 1},
}

func TestLawIsNeverBelowItsRule(t *testing.T) {
	for _, r := range responses {
		law, curve := r.law(t), r.curve(t, r.rule)
		for _, eps := range []float64{-8, -2.1, -1, -.37, -.01, 0, .003, .05, .2, .77, 1, 1.3, 2.9, 8} {
			require.GreaterOrEqual(t, law.Delta(eps), curve(eps)*(1-1e-10), "%+v at ε = %v", r, eps)
		}
	}
}

// At the same δ, the law's ε must be at most 1 % above the rule's. Where the rule's ε is below a tenth of the claim's
// ε, it may be a thousandth of the claim's ε above.
func TestLawIsNoFurtherFromItsRuleThanOnePercent(t *testing.T) {
	for _, r := range responses {
		law, curve, seen := r.law(t), r.curve(t, r.rule), 0
		for _, share := range []float64{.1, .2, .3, .4, .6, .8, 1, 1.2, 1.3, 1.4, 2, 4} {
			eps := r.eps * share
			if delta := curve(eps); delta >= 1e-12 && delta <= .1 {
				seen++
				require.LessOrEqual(t, law.Delta(math.Max(eps*1.01, eps+r.eps*.001)), delta, "%+v at ε = %v", r, eps)
			}
		}
		require.Greater(t, seen, 3, "%+v", r)
	}
}

// The curves of rules revealed and theorem1 drop to 0 at ε₀, so they are not convex. Near ε₀ the law may lie below
// them, but it must never lie below rule exact, which they bound.
func TestLawOfLooserRules(t *testing.T) {
	for _, r := range []blankets{
		{accountant.Revealed, 16, 10_000, 1},
		{accountant.Revealed, 100, 1000, 1},
		{accountant.Revealed, 16, 10_000, .1},
		{accountant.Revealed, 3, 5, 2},
		{accountant.Theorem1, 16, 100_000, 1},
		{accountant.Theorem1, 2, 100_000, .5},
	} {
		law, exact, own := r.law(t), r.curve(t, accountant.Exact), r.curve(t, r.rule)
		read, err := compose.DecodeLaw(law.Encode())
		require.NoError(t, err, "%+v", r)
		require.Equal(t, law, read)
		for _, eps := range []float64{-8, -1, -.1, 0, .05, .2, .5, 1} {
			require.GreaterOrEqual(t, law.Delta(eps), exact(eps)*(1-1e-10), "%+v at ε = %v", r, eps)
			if eps >= 0 && own(eps) > 0 {
				require.LessOrEqual(t, law.Delta(math.Max(eps*1.01, eps+r.eps*.001)), own(eps), "%+v at ε = %v", r, eps)
			}
		}
	}
}

// A curve that is loose, especially near ε = 0, must still give a law whose masses sum to 1 and that bounds the true
// curve in both directions.
func TestLawsOfLooseCurves(t *testing.T) {
	exact := blankets{accountant.Exact, 16, 10_000, 1}.curve(t, accountant.Exact)
	known := map[float64]float64{}
	truth := func(eps float64) float64 {
		if _, ok := known[eps]; !ok {
			known[eps] = exact(eps)
		}
		return known[eps]
	}
	for name, loose := range map[string]func(eps float64) float64{
		"not loose":       func(float64) float64 { return 1 },
		"by 10 and less":  func(eps float64) float64 { return 1 + 9*math.Exp(-3*eps) },
		"by a factor":     func(float64) float64 { return 7 },
		"1 near 0":        func(eps float64) float64 { return 1 + 1e9*max(0, .5-eps) },
		"as if by chance": func(eps float64) float64 { return 1 + math.Mod(eps*1e6, 1) },
		"falling":         func(eps float64) float64 { return 1 + eps*eps },
	} {
		bound := func(eps float64) float64 { return min(1, truth(eps)*loose(eps)) }
		for _, law := range []*compose.Law{compose.LawOf(bound, 2), compose.LawOfSlow(bound, 2)} {
			for eps := -8.0; eps <= 8; eps += .125 {
				require.GreaterOrEqual(t, law.Delta(eps), truth(eps)*(1-1e-10), "%s at ε = %v", name, eps)
			}
			read, err := compose.DecodeLaw(law.Encode())
			require.NoError(t, err, name)
			require.Equal(t, law, read, name)
		}
	}
	pair, err := compose.FromCurve(func(eps float64) (float64, error) { return min(1, 10*truth(eps)), nil }, 2, 100)
	require.NoError(t, err)
	require.InEpsilon(t, 1, pair.Delta(-50), 1e-12) // δ(−50) is the sum of all masses, up to e^−50.
}

// One law, and compositions of up to three epochs of the same or different tasks, must be at least the δ found by
// enumeration, whatever the other users' values.
func TestLawsComposeNotBelowEnumeration(t *testing.T) {
	type task struct {
		k      int
		gamma  float64
		others []int
	}
	for _, tasks := range [][]task{
		{{2, .3, nil}},
		{{3, .3, []int{0, 1}}, {3, .3, []int{0, 1}}, {3, .3, []int{2, 2}}},
		{{2, .7, []int{1, 1, 1}}, {3, .5, []int{0, 2}}, {4, .4, []int{3}}},
		{{3, .7, []int{0, 1, 2}}, {2, .2, []int{0}}},
	} {
		product, seen := law{{1, 1}}, []compose.Observation(nil)
		for _, one := range tasks {
			product = product.product(shuffledLaw(one.k, one.gamma, one.others))
			dominating, err := compose.KRRLaw(accountant.Exact, uint64(one.k), one.gamma, uint64(len(one.others)+1))
			require.NoError(t, err)
			seen = append(seen, dominating.Observation(1))
		}
		for _, eps := range []float64{.1, .5, 1, 1.7, 2.5, 4} {
			truth := product.delta(eps)
			require.GreaterOrEqual(t, compose.Delta(seen, eps, 1e-6), truth*(1-1e-12), "%v at ε = %v", tasks, eps)
		}
	}
}

// A year of 16-ary randomized response must cost the ε that docs/proofs/loss-laws.md states.
func TestEpochsOfRandomizedResponse(t *testing.T) {
	law := blankets{accountant.Exact, 16, 10_000, 1}.law(t)
	for _, c := range []struct {
		epochs uint64
		most   float64
	}{{1, 1.0002}, {7, 2.45}, {30, 5.2}, {365, 22.5}} {
		eps, err := compose.Epsilon([]compose.Observation{law.Observation(c.epochs)}, float64(c.epochs)*1e-6)
		require.NoError(t, err)
		t.Logf("%d epochs: ε = %.5g", c.epochs, eps)
		require.LessOrEqual(t, eps, c.most, "%d epochs", c.epochs)
	}
}

// For 7, 30 and 365 epochs the composed ε must be within 2 % of a reference. The reference sums over all outcomes
// (three nested sums) and convolves on a fine grid, with losses rounded to the nearest point.
func TestEpochsAreWithinTwoPercentOfHighResolution(t *testing.T) {
	r := blankets{accountant.Exact, 16, 10_000, 1}
	fine := highResolution(16, r.gamma(t), 10_000)
	for epochs, some := range map[uint64][]float64{7: {1, 1.6, 2, 2.43}, 30: {2, 4, 5.11}, 365: {12, 18, 22.18}} {
		seen, truth := []compose.Observation{r.law(t).Observation(epochs)}, fine(epochs)
		for _, eps := range some {
			want, bound := truth(eps), compose.Delta(seen, eps, float64(epochs)*1e-6)
			require.GreaterOrEqual(t, bound, want*(1-1e-3), "%d epochs, ε = %v", epochs, eps)
			require.LessOrEqual(t, compose.Delta(seen, eps*1.02, float64(epochs)*1e-6), want, "%d epochs, ε = %v",
				epochs, eps)
		}
		eps, at := compose.Epsilon(seen, float64(epochs)*1e-6)
		require.NoError(t, at)
		t.Logf("%d epochs: ε = %.5g, of which δ is %.5g of the one asked for at high resolution", epochs, eps,
			truth(eps)/(float64(epochs)*1e-6))
	}
}

// highResolution returns a function that gives the reference curve δ(ε) of a number of epochs of rule exact's pair.
func highResolution(k, gamma, n float64) func(epochs uint64) func(eps float64) float64 {
	const step, size = 1.0 / 1024, 1 << 17
	one := make([]complex128, size)
	p := gamma / k
	add := func(probability, loss float64) {
		one[(int(math.Round(loss/step))+size)%size] += complex(probability, 0)
	}
	for s := 0.0; s <= 200; s++ {
		bulk := binomialMass(s, n, 2*p)
		for rest := 250.0; rest <= 900; rest++ {
			base := bulk * binomialMass(rest, n-s, (gamma-2*p)/(1-2*p))
			for in := 0.0; in <= s && base > 1e-14; in++ {
				high, low := (1-gamma)*k*in+gamma*(s+rest), (1-gamma)*k*(s-in)+gamma*(s+rest)
				add(base*binomialMass(in, s, .5)*high/(gamma*n), math.Log(high/low))
			}
		}
	}
	accountant.Transform(one)
	return func(epochs uint64) func(eps float64) float64 {
		all := make([]complex128, size)
		for i, x := range one {
			all[i] = cmplx.Pow(x, complex(float64(epochs), 0))
		}
		accountant.Transform(all)
		return func(eps float64) (delta float64) {
			for i := range size / 2 {
				if loss := float64(i) * step; loss > eps {
					delta -= real(all[(size-i)%size]) / size * math.Expm1(eps-loss)
				}
			}
			return delta
		}
	}
}

func binomialMass(x, n, p float64) float64 {
	all, _ := math.Lgamma(n + 1)
	in, _ := math.Lgamma(x + 1)
	out, _ := math.Lgamma(n - x + 1)
	return math.Exp(all - in - out + x*math.Log(p) + (n-x)*math.Log1p(-p))
}

// If γ is close to 1, the probabilities of most blanket counts underflow, and 1−γ has few digits. The law must still be
// at least the rule's curve.
func TestLawNextToOne(t *testing.T) {
	for _, truth := range []float64{1e-4, 1e-6, 3e-8, 1e-10} {
		for _, n := range []uint64{3, 40, 1000} {
			for _, u := range []float64{0, 1} {
				const k = 1e9
				gamma, kappa := 1-truth, 1/(float64(n)-u-.5)
				eps := math.Log1p(kappa * (1 - gamma) * k / gamma)
				want, err := accountant.KRRDelta(accountant.Exact, k, gamma, n, eps)
				require.NoError(t, err)
				law, err := compose.KRRLaw(accountant.Exact, k, gamma, n)
				require.NoError(t, err)
				require.GreaterOrEqual(t, law.Delta(eps), want*(1-1e-9), "1−γ=%g n=%d u=%g", truth, n, u)
			}
		}
	}
}
