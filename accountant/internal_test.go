package accountant

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// Both evaluations of rule revealed (pairSum and walk) must agree. They share no code except binomial.
func TestRevealedBothWays(t *testing.T) {
	for _, n := range []float64{1e3, 1e6, 1e8} {
		for _, p := range []float64{.01, .3} {
			for _, z := range []float64{.5, 3, 7} {
				e1 := math.Expm1(z / math.Sqrt(n*p/2))
				w := walk{n: n, p: p, up: 1, down: 1 + e1, scale: 1 / (n * p)}
				direct := newPairSum(n-1, 2*p, e1).sum()
				value, _ := w.expectation()
				require.InEpsilon(t, direct, value, 2e-9, "n=%g p=%g z=%g", n, p, z)
			}
		}
	}
}

func TestDyadicRoundsUpAndIsExact(t *testing.T) {
	for _, gamma := range []float64{1, .5, .3, 1e-3, 1e-8, 0x1p-30} {
		num, den := dyadic(gamma)
		got := float64(num) / float64(den)
		require.GreaterOrEqual(t, got, gamma)
		require.LessOrEqual(t, got, gamma*(1+1e-9))
		require.Equal(t, float64(num), got*float64(den))
	}
}

func TestBinomialAgainstRecurrence(t *testing.T) {
	for _, p := range []float64{.01, .3, .9} {
		const n = 200
		pr := math.Pow(1-p, n)
		for x := 0.0; x <= n; x++ {
			if pr > 1e-290 {
				require.InEpsilon(t, pr, binomial(x, n, p, 1-p), 1e-12)
			}
			pr *= (n - x) * p / ((x + 1) * (1 - p))
		}
	}
}

// Both evaluations of the Laplace mechanism (inversion and lattice) must agree. They share no code except the law's
// tilt.
func TestLaplaceBothWays(t *testing.T) {
	for _, n := range []float64{6e3, 2e4} {
		for _, eps0 := range []float64{.5, 1, 2} {
			for _, f := range []float64{.02, .05} {
				l := laplaceLaw{n: n, eps0: eps0, eps: f * eps0, shrink: math.Exp(-eps0 / 2)}
				tuned := l.steps(0).tune()
				exact, lattice := l.invert(tuned, l.halfWindow(tuned)), l.lattice(tuned)
				require.LessOrEqual(t, exact, lattice*(1+1e-9))
				require.InEpsilon(t, exact, lattice, 2e-3, "n=%g ε₀=%g f=%g", n, eps0, f)
			}
		}
	}
}

// Both evaluations must also agree with only some 30 to 100 users in the blanket. There only the bound by the density's
// total variation makes inversion possible.
func TestLaplaceBothWaysForFewUsers(t *testing.T) {
	for _, tt := range []struct{ n, eps0, eps float64 }{{200, 1, .31}, {300, 1, .25}, {300, 2, .63}, {1000, .2, .02},
		{1000, 2, .33}} {
		l := laplaceLaw{n: tt.n, eps0: tt.eps0, eps: tt.eps, shrink: math.Exp(-tt.eps0 / 2)}
		tuned := l.steps(0).tune()
		exact, lattice := l.invert(tuned, l.halfWindow(tuned)), l.lattice(tuned)
		require.LessOrEqual(t, exact, lattice*(1+1e-9), "%+v", tt)
		require.InEpsilon(t, exact, lattice, 5e-5, "%+v", tt)
	}
}

// δ of few users must be at least one user's divergence times the probability that nobody else's message comes from the
// blanket. The grid's tilt once overflowed for few users and ε close to ε₀.
func TestLaplaceIsNotBelowOneUser(t *testing.T) {
	counts := []uint64{1, 3, 300}
	if stattest.Long {
		counts = append(counts, 2, 30)
	}
	for _, users := range counts {
		for _, eps0 := range []float64{.2, 1, 2, 4, 8} {
			for _, gap := range []float64{.3, 1e-2, 1e-4, 1e-6} {
				got := laplaceDelta(eps0, users, eps0*(1-gap))
				least := math.Pow(-math.Expm1(-eps0/2), float64(users-1)) * -math.Expm1(-eps0*gap/2)
				require.GreaterOrEqual(t, got, least*(1-1e-9), "n=%d ε₀=%g gap %g", users, eps0, gap)
				require.LessOrEqual(t, got, 1.0)
			}
		}
	}
}

// With one user the shuffle does nothing: δ must be the divergence of Lap against Lap shifted by 1, 1 − e^{(ε−ε₀)/2}.
func TestLaplaceOfOneUser(t *testing.T) {
	for _, eps := range []float64{0, .2, .9} {
		want := -math.Expm1((eps - 1) / 2)
		got := laplaceDelta(1, 1, eps)
		require.GreaterOrEqual(t, got, want*(1-1e-12))
		require.InEpsilon(t, want, got, 1e-3)
	}
}

// The inputs 0 and 1 must be the worst pair (docs/proofs/laplace.md proves it by convex order): on a grid of pairs,
// E[(L−t)₊] by numerical integration must be largest at (0, 1).
func TestLaplaceWorstPair(t *testing.T) {
	call := func(eps0, eps, x, y, level float64) float64 {
		const steps = 2000
		sum, low, high := 0.0, -12/eps0, 1+12/eps0
		for i := range steps {
			z := low + (high-low)*(float64(i)+.5)/steps
			mu := func(c float64) float64 { return eps0 / 2 * math.Exp(-eps0*math.Abs(z-c)) }
			sum += math.Max(0, mu(x)-math.Exp(eps)*mu(y)-level*math.Min(mu(0), mu(1)))
		}
		return sum * (high - low) / steps
	}
	for _, eps0 := range []float64{.5, 2, 5} {
		for _, eps := range []float64{0, .3} {
			for level := -3 * math.Exp(eps0); level < math.Exp(eps0); level += math.Exp(eps0) / 7 {
				worst := call(eps0, eps, 0, 1, level)
				for _, x := range []float64{0, .2, .5, .8, 1} {
					for _, y := range []float64{0, .1, .4, .6, 1} {
						require.LessOrEqual(t, call(eps0, eps, x, y, level), worst+2e-5*math.Exp(eps0),
							"ε₀=%g x=%g y=%g level=%g", eps0, x, y, level)
					}
				}
			}
		}
	}
}

// The inversion must equal formula (1) of othersDelta, summed plainly over every outcome that matters.
func TestTwoValuedAgainstPlainSum(t *testing.T) {
	for _, tt := range []struct{ ones, zeros, f, eps float64 }{
		{1e4, 0, 3e-3, 1}, {0, 1e4, 3e-3, 1}, {1e6, 2e5, 1e-3, .1}, {1e6, 0, .3, .005}, {5e4, 5e4, .2, .02},
		{1e9, 0, 5e-8, .8}, {1e9, 1e6, 1e-6, .15}, {1e8, 3e7, 1e-4, .001}, {40, 60, .01, 3}, {1e5, 1e5, 1e-4, 1.5},
	} {
		l := newTwoValued(tt.f, tt.eps)
		want := twoValuedPlain(tt.ones, tt.zeros, tt.f, tt.eps)
		got := l.delta(tt.ones, tt.zeros)
		require.InEpsilon(t, want, got, 1e-9, "%+v", tt)
		require.GreaterOrEqual(t, got, want*(1-2e-11), "%+v", tt)
		require.GreaterOrEqual(t, l.ceiling(tt.ones, tt.zeros), want, "%+v", tt)
	}
}

// twoValuedPlain returns Σ_j (a·Pr[D=j−1] − b·Pr[D=j])₊, the sum that formula (1) of othersDelta maximizes over T.
func twoValuedPlain(ones, zeros, f, eps float64) float64 {
	within := func(n float64) (lo, hi float64) {
		d := 15*math.Sqrt(n*f) + 50
		return math.Max(0, math.Floor(n*f-d)), math.Min(n, math.Ceil(n*f+d))
	}
	lo1, hi1 := within(ones)
	lo0, hi0 := within(zeros)
	law := make([]float64, int(hi1+hi0-lo1-lo0)+3) // of flipped zeros − flipped ones, from lo0−hi1−1
	for x := lo1; x <= hi1; x++ {
		p := binomial(x, ones, f, 1-f)
		for y := lo0; y <= hi0; y++ {
			law[int(y-lo0+hi1-x)+1] += p * binomial(y, zeros, f, 1-f)
		}
	}
	a, b, sum := 1-f*(2+math.Expm1(eps)), 1-f*(2+math.Expm1(eps))+math.Expm1(eps), 0.0
	for j := 1; j < len(law); j++ {
		sum += math.Max(0, a*law[j-1]-b*law[j])
	}
	return sum
}

// The bound of an interval of inputs must be at least δ of every input in the interval.
func TestOthersIntervalsCoverEveryInput(t *testing.T) {
	for _, tt := range []struct {
		users      uint64
		gamma, eps float64
	}{{1e8, .000028, .1}, {1e8, .0000041, .3}, {1e8, .001886, .01}} {
		bound, l, n := othersDelta(tt.gamma, tt.users, tt.eps), newTwoValued(tt.gamma/2, tt.eps), float64(tt.users-1)
		worst, at := 0.0, 0.0
		for u := 0.0; u < 3000; u++ {
			if d := l.delta(n-u, u); d > worst {
				worst, at = d, u
			}
		}
		require.Greater(t, othersWidth(n, at), 1.0, "%+v", tt)
		require.GreaterOrEqual(t, bound, worst, "%+v", tt)
		require.LessOrEqual(t, bound, worst*1.01, "%+v", tt)
	}
}

// The tails of countLaw must equal those of a plain sum over both binomials, up to the stated error, for numbers of
// ones from none to all.
func TestCountLawAgainstPlainSum(t *testing.T) {
	for _, c := range []struct{ ones, zeros, f float64 }{
		{0, 0, .3}, {1, 0, .3}, {0, 1, .3}, {5, 3, .2}, {999, 0, .25}, {0, 999, .25}, {500, 499, .25}, {700, 299, .25},
		{299, 700, .49}, {999, 0, .0005}, {90, 10, 1e-7}, {1e6, 10, 1e-3}, {6e5, 4e5, 1e-3}, {10, 1e6, 1e-3},
		{1e9, 0, 1e-7}, {5e8, 5e8, 1e-6}, {3e8, 7e8, 1e-6},
	} {
		l := &countLaw{f: c.f}
		l.make(c.ones, c.zeros)
		require.LessOrEqual(t, l.err, 1e-9, "%+v", c)
		points := len(l.tails) - 1
		want := make([]float64, points+1)
		for i := points - 1; i >= 0; i-- {
			want[i] = want[i+1] + plainCount(c.ones, c.zeros, c.f, l.low+float64(i))
		}
		for i := range points {
			if want[i] > 1e-24 {
				require.InEpsilon(t, want[i], l.tails[i], l.err+1e-11, "%+v at %v", c, l.low+float64(i))
			}
		}
		require.InDelta(t, 1, want[0], 1e-11, "%+v", c)
	}
}

// plainCount returns Pr[Bin(zeros, f) − Bin(ones, f) = x].
func plainCount(ones, zeros, f, x float64) (sum float64) {
	mean, reach := ones*f, 30+14*math.Sqrt((ones+zeros)*f)
	for k := math.Max(0, math.Floor(mean-reach)); k <= math.Min(ones, mean+reach); k++ {
		sum += binomial(k, ones, f, 1-f) * binomial(k+x, zeros, f, 1-f)
	}
	return sum
}
