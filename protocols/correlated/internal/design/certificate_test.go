package design

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

var noises = []Noise{
	{R: 1, S: 0.5}, {R: 3.5, S: 0.1}, {R: 15, S: 0.03}, {R: 17, S: 0.004}, {R: 40, S: 0.3},
	{R: 4, S: 0.1, Jump: 5}, {R: 20, S: 0, Jump: 10}, {R: 100, S: 0.02, Jump: 50}, {R: 1, S: 0, Jump: 2},
}

// probabilities returns P(z) by the plain recursion (M2) of table.go.
func probabilities(n Noise, size int) []float64 {
	p := make([]float64, size)
	p[0] = math.Exp(-events([]Group{{Weight: 1, Mass: n.R, S: n.S, Jump: n.Jump}}))
	for z := 1; z < size; z++ {
		for k := 1; k <= z && (n.Jump == 0 || k <= int(n.Jump)); k++ {
			p[z] += n.R * math.Exp(-n.S*float64(k)) * p[z-k] / float64(z)
		}
	}
	return p
}

func TestLawsAreTheCompoundPoissonDistributionAndLogConcave(t *testing.T) {
	for _, n := range noises {
		l := newLaw(n, 4, 1e-9)
		first, end := span(l)
		size := int(min(end+4, 3000))
		want := probabilities(n, size)
		for z := range size {
			require.InDelta(t, math.Log(want[z]), l.logP(int64(z)), 1e-9, "%v at %d", n, z)
			if z >= 2 {
				require.LessOrEqual(t, l.logP(int64(z))+l.logP(int64(z-2)), 2*l.logP(int64(z-1))+1e-9, "%v at %d", n, z)
			}
		}
		kept := 0.0
		for z := first; z < min(end, int64(size)); z++ {
			kept += want[z]
		}
		if end < int64(size) {
			require.LessOrEqual(t, 1-kept, l.missed(true)+edge+1e-12, "%v", n)
		}
	}
}

// direct returns the moment (M1) of law, summed over T term by term.
func direct(l law, theta float64, d int64, cut bool) float64 {
	first, end := span(l)
	if !cut {
		first = 0
	}
	sum := 0.0
	for z := first; z < end; z++ {
		sum += math.Exp(l.logP(z) + theta*(l.logP(z)-l.logP(z+d)))
	}
	return math.Log(sum)
}

func TestMomentsAreUpperBoundsConvexInTheShift(t *testing.T) {
	for _, n := range noises {
		l := newLaw(n, 4, 1e-4)
		for _, theta := range []float64{0.5, 3, 20} {
			for d := int64(-4); d <= 4; d++ {
				got, want := l.moment(theta, d, true), direct(l, theta, d, true)
				require.GreaterOrEqual(t, got, want-1e-9, "%v θ=%g d=%d", n, theta, d)
				require.LessOrEqual(t, got, want+0.03+0.03*math.Abs(want), "%v θ=%g d=%d", n, theta, d)
				if d >= 0 {
					require.GreaterOrEqual(t, l.moment(theta, d, false), direct(l, theta, d, false)-1e-9)
				}
				if d > -4 && d < 4 {
					require.LessOrEqual(t, 2*want, direct(l, theta, d-1, true)+direct(l, theta, d+1, true)+1e-9)
				}
			}
		}
	}
}

// stick returns the hockey-stick divergence of a distribution from its shift, Σ (P(z) - e^ε·P(z+d))₊.
func stick(l law, eps float64, d int64) (delta float64) {
	_, end := span(l)
	for z := int64(0); z < end; z++ {
		q := 0.0
		if z+d >= 0 {
			q = math.Exp(eps + l.logP(z+d))
		}
		delta += max(math.Exp(l.logP(z))-q, 0)
	}
	return delta
}

// Checks the noise of one atom, shifted in either direction. Noise as large as the paper's closed form gives must be
// private by a large margin. For less noise, the bound by moments must be at least the exact hockey-stick divergence,
// and at most a few dozen times as large.
func TestShiftOfOneNegativeBinomial(t *testing.T) {
	for _, c := range []struct{ eps, delta float64 }{{0.1, 1e-6}, {0.5, 1e-3}, {0.9, 1e-9}} {
		const top = 16
		n := Noise{R: 3 * (1 + math.Log(1/c.delta)), S: 0.2 * c.eps / top}
		l := newLaw(n, top, 1e-13)
		for _, d := range []int64{top, -top} {
			exact := stick(l, c.eps, d)
			require.Less(t, exact, c.delta*1e-2)
			t.Logf("ε=%g δ=%g: closed form has δ = %.2g for a shift by %d", c.eps, c.delta, exact, d)
		}
		n.S *= 2.5
		n.R /= 2.4
		l = newLaw(n, top, c.delta*1e-3)
		for _, d := range []int64{top, -top} {
			exact, bound := stick(l, c.eps, d), math.Inf(1)
			for theta := 1.0; theta < 1000; theta *= 1.1 {
				scale := logScale(theta) - theta*c.eps
				bound = min(bound, l.missed(d < 0)+math.Exp(scale+l.moment(theta, d, d < 0)))
			}
			require.GreaterOrEqual(t, bound, exact)
			require.LessOrEqual(t, bound, 50*exact+2*l.missed(true))
		}
	}
}

// halved returns the design with half of every r, except that of the central noise.
func halved(d Design) *Design {
	d.Levels = append([]Noise{}, d.Levels...)
	for l := range d.Levels {
		d.Levels[l].R /= 2
	}
	d.Pair.R /= 2
	return &d
}

func TestEveryPairComposedExactlyIsBelowTheBound(t *testing.T) {
	cases := []Target{
		{Top: 2, Star: 0.45, Epsilon: 1, Delta: 1e-5},
		{Top: 3, Star: 0.3, Epsilon: 1, Delta: 1e-6},
		{Top: 5, Star: 0.2, Epsilon: 1.2, Delta: 1e-6},
		{Top: 7, Star: 0.1, Epsilon: 1, Delta: 1e-5, Burst: 60},
		{Top: 16, Star: 0.9 / 16, Epsilon: 1, Delta: 1e-6},
	}
	if stattest.Long {
		cases = append(cases, Target{Top: 16, Star: 0.9 / 16, Epsilon: 1, Delta: 1e-6, Burst: 150},
			Target{Top: 37, Star: 0.9 / 37, Epsilon: 1, Delta: 1e-8},
			Target{Top: 64, Star: 0.9 / 64, Epsilon: 1, Delta: 1e-6})
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("Δ=%d/burst=%d", c.Top, c.Burst), func(t *testing.T) {
			d, ok := c.Solve()
			require.True(t, ok)
			g := exactGrid{c.Epsilon * 4 / 8192, 8192}
			exact, at := exactDelta(&d.Design, c.Epsilon, g, c.Delta*1e-6)
			t.Logf("all pairs exactly: δ = %.3g at inputs %v, bound %.3g", exact, at,
				d.Bound(c.Epsilon, d.Theta, d.Miss))
			require.LessOrEqual(t, exact, d.Bound(c.Epsilon, d.Theta, d.Miss))
			require.LessOrEqual(t, d.Bound(c.Epsilon, d.Theta, d.Miss), c.Delta)
			require.Greater(t, exact, c.Delta/100, "the bound wastes noise")
			weak, _ := exactDelta(halved(d.Design), c.Epsilon, g, c.Delta*1e-6)
			require.Greater(t, weak, 2*c.Delta, "half of every r")
			none := d.Design
			none.Levels = append([]Noise{}, d.Levels...)
			none.Levels[0] = Noise{R: 1, S: 10}
			weak, _ = exactDelta(&none, c.Epsilon, g, c.Delta*1e-6)
			require.Greater(t, weak, 2*c.Delta, "almost no noise at level 0")
		})
	}
}

// TestLargeEpsilon: the search must find noise for every ε, and its bound must hold. At ε = 8 and more, the θ that is
// best at ε = 1 proves nothing, whatever the noise is.
func TestLargeEpsilon(t *testing.T) {
	for _, eps := range []float64{8, 30, 100} {
		for _, top := range []uint64{1, 3} {
			c := Target{Top: top, Star: .9 * eps / float64(top), Epsilon: eps, Delta: 1e-6}
			d, ok := c.Solve()
			require.True(t, ok, "ε = %g, Δ = %d", eps, top)
			bound := d.Bound(eps, d.Theta, d.Miss)
			require.LessOrEqual(t, bound, c.Delta)
			exact, at := exactDelta(&d.Design, eps, exactGrid{eps * 4 / 32768, 32768}, c.Delta*1e-6)
			t.Logf("ε = %g, Δ = %d: exact δ %.3g at inputs %v, bound %.3g", eps, top, exact, at, bound)
			require.LessOrEqual(t, exact, bound)
		}
	}
}

// Measures how much of δ the moment bound leaves unused if every pair is composed exactly. It also measures how many
// zero-sum messages exact composition would save if all r are scaled alike. It logs the figures of
// docs/proofs/correlated.md, section 6.
func TestSlackAtSmallMax(t *testing.T) {
	for _, top := range []uint64{1, 2, 3} {
		c := Target{Top: top, Star: 0.9 / float64(top), Epsilon: 1, Delta: 1e-6}
		d, ok := c.Solve()
		require.True(t, ok)
		g := exactGrid{c.Epsilon * 4 / 8192, 8192}
		exact, at := exactDelta(&d.Design, c.Epsilon, g, c.Delta*1e-6)
		lo, hi := 0.25, 1.0
		for range 12 {
			mid := (lo + hi) / 2
			less := d.Design
			less.Pair.R *= mid
			less.Levels = append([]Noise{}, d.Levels...)
			for l := range less.Levels {
				less.Levels[l].R *= mid
			}
			if delta, _ := exactDelta(&less, c.Epsilon, g, c.Delta*1e-6); delta > c.Delta {
				lo = mid
			} else {
				hi = mid
			}
		}
		t.Logf("Δ=%d: exact δ %.3g at inputs %v of a claim of %g; %.0f %% of the zero-sum messages would do", top,
			exact, at, c.Delta, 100*hi)
		require.LessOrEqual(t, exact, c.Delta)
		require.Greater(t, exact, c.Delta/20)
		require.Greater(t, hi, 0.5)
	}
}

// TestRareValuesWithLargeLossesCount checks the moments E[e^{θ·loss}] of a noise value where rare values decide them.
// If the noise is a sum of bounded jumps, the loss grows without limit with the value. So with a large θ, values of a
// probability below 2⁻⁵³, the precision of a float64, decide the moment. A task chooses θ.
func TestRareValuesWithLargeLossesCount(t *testing.T) {
	n := Noise{R: 20, Jump: 30}
	for _, c := range []struct {
		theta, miss float64
		shift       int64
	}{{300, 1e-19, 1}, {2000, 1e-19, 1}, {400, 1e-20, 4}} {
		l := newLaw(n, 4, c.miss).(*table)
		sum := 0.0
		for z := range l.to {
			sum += math.Exp(l.logP(z) + c.theta*(l.logP(z)-l.logP(z+c.shift)))
		}
		got := l.moment(c.theta, c.shift, false)
		require.GreaterOrEqual(t, got, math.Log(sum), "%+v", c)
		require.InDelta(t, math.Log(sum), got, 0.1, "%+v", c)
	}
}

// Above Δ = 64 inputs are grouped in classes. No pair of inputs may exceed the bound of its classes.
func TestClassesCoverEveryPair(t *testing.T) {
	for _, c := range []Target{{Top: 100, Star: 0.9 / 100, Epsilon: 1, Delta: 1e-6},
		{Top: 301, Star: 0.45 / 301, Epsilon: 1, Delta: 1e-6, Sparse: true, Zero: true}} {
		d, ok := c.Solve()
		require.True(t, ok)
		certificate := newCertificate(&d.Design, d.Theta, d.Miss)
		scale := logScale(d.Theta) - d.Theta*c.Epsilon
		single := func(i uint64) class {
			k := class{lo: int64(i), hi: int64(i), pair: [2]int64{pairShift(i), pairShift(i)}}
			k.rest = [2]int64{k.pair[0] + int64(i), k.pair[0] + int64(i)}
			for which := range k.sides {
				k.sides[which] = certificate.side(i, which)
				if i == 0 {
					k.sides[which] = certificate.zeros[which]
				}
			}
			return k
		}
		worst, zero := 0.0, single(0)
		for i := range c.Top + 1 {
			for j := range c.Top + 1 {
				a, b := single(i), single(j)
				moment := a.sides[0].moment + b.sides[1].moment + scale
				missed := a.sides[0].missed + b.sides[1].missed + certificate.always[1].missed
				if i != j {
					worst = max(worst, missed+math.Exp(moment+certificate.central(&a, &b)))
				}
				if c.Sparse {
					worst = max(worst, missed+certificate.always[1].missed+math.Exp(moment+certificate.central(&a,
						&zero)+certificate.central(&zero, &b)))
				}
			}
		}
		bound := d.Bound(c.Epsilon, d.Theta, d.Miss)
		t.Logf("Δ=%d: %.4g by classes, %.4g pair by pair", c.Top, bound, worst)
		require.LessOrEqual(t, worst, bound)
		require.Greater(t, worst, bound/4)
	}
}

// The pairs of inputs that worst keeps have, at every ε, the largest bound of all pairs.
func TestWorstPairsAtEveryEpsilon(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		goal := Target{Top: 12, Star: .9 / 12, Epsilon: 1, Delta: 1e-6, Zero: true, Sparse: sparse}
		if sparse {
			goal.Star /= 2
		}
		d, ok := goal.Solve()
		require.True(t, ok)
		for l := range d.Levels { // bounds on jumps that hardly matter, each with another distance
			d.Levels[l].Jump = uint64((40 + 2*float64(l%3)) / d.Levels[l].S)
		}
		d.Pair.Jump = uint64(41 / d.Pair.S)
		c := newCertificate(&d.Design, d.Theta, d.Miss)
		kept, all := c.worst(), c.classes()
		require.Less(t, len(kept), 2*len(all), "of the pairs")
		for eps := 0.0; eps <= 3; eps += .05 {
			most := 0.0
			for i := range all {
				for j := range all {
					most = max(most, c.pairAt(&all[0], &all[i], &all[j], eps, i != j))
				}
			}
			require.InEpsilon(t, most, Chernoff{c.theta, kept}.Delta(eps), 1e-6, "sparse %v at %v", sparse, eps)
		}
	}
}

// pairAt returns the bound (P2) on δ for two inputs. The value changes in one coordinate or, if values are sparse,
// moves to another coordinate.
func (c *certificate) pairAt(zero, i, j *class, eps float64, differ bool) (most float64) {
	log := i.sides[0].moment + j.sides[1].moment + logScale(c.theta) - c.theta*eps
	missed := i.sides[0].missed + j.sides[1].missed + c.always[1].missed
	far := (1 + math.Exp(eps)) * (i.sides[0].far + j.sides[1].far + c.always[1].far)
	if differ {
		most = missed + far + math.Exp(log+c.central(i, j))
	}
	if c.Sparse {
		missed += c.always[1].missed + (1+math.Exp(eps))*c.always[1].far
		most = max(most, missed+far+math.Exp(log+c.central(i, zero)+c.central(zero, j)))
	}
	return most
}

// c(θ) of the bound (P2) is the maximum of (1 − e^−x)·e^−θx, at any θ that a task may use and beyond.
func TestScaleOfMoments(t *testing.T) {
	require.InDelta(t, -2*math.Ln2, logScale(1), 1e-15)
	for theta := 1e-3; theta < 1e18; theta *= 7 {
		x := math.Log1p(1 / theta)
		require.InEpsilon(t, math.Log(-math.Expm1(-x))-theta*x, logScale(theta), 1e-9, "θ = %v", theta)
	}
}

// Checks bounded jumps for which the proof uses noise without a bound. The bound on δ at each ε must be that without
// bounded jumps, plus 1 + e^ε times the expected number of longer jumps of the atoms that two inputs touch. For Δ = 1
// that is only the atom {-1,+1}.
func TestBoundedJumpsAtEveryEpsilon(t *testing.T) {
	free := Design{Top: 1, Star: .9, Pair: Noise{R: 20, S: .4}, Levels: nil}
	bounded := free
	bounded.Pair.Jump = 101
	distance := 0.0
	for k := 102.0; k < 400; k++ {
		distance += 20 * math.Exp(-.4*k) / k
	}
	require.Greater(t, distance, 1e-19)
	a, b := free.Chernoff(8, 1e-9), bounded.Chernoff(8, 1e-9)
	for eps := 0.0; eps < 40; eps += .5 {
		more := b.Delta(eps) - a.Delta(eps)
		require.GreaterOrEqual(t, more, (1+math.Exp(eps))*distance-1e-15*b.Delta(eps), "at %v", eps)
		require.LessOrEqual(t, more, 1.1*(1+math.Exp(eps))*distance+1e-15*b.Delta(eps), "at %v", eps)
	}
}
