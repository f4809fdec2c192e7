package correlated

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

var noises = []noise{
	{r: 1, s: 0.5}, {r: 3.5, s: 0.1}, {r: 15, s: 0.03}, {r: 17, s: 0.004}, {r: 40, s: 0.3},
	{r: 4, s: 0.1, jump: 5}, {r: 20, s: 0, jump: 10}, {r: 100, s: 0.02, jump: 50}, {r: 1, s: 0, jump: 2},
}

// probabilities returns P(z) from (M2), with the recursion as it stands.
func probabilities(n noise, size int) []float64 {
	p := make([]float64, size)
	p[0] = math.Exp(-events([]group{{weight: 1, mass: n.r, s: n.s, jump: n.jump}}))
	for z := 1; z < size; z++ {
		for k := 1; k <= z && (n.jump == 0 || k <= int(n.jump)); k++ {
			p[z] += n.r * math.Exp(-n.s*float64(k)) * p[z-k] / float64(z)
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

// direct sums (M1) over T as it stands.
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

// stick returns the hockey stick of a law against its shift, Σ (P(z) - e^ε·P(z+d))₊.
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

// The closed form of the paper is private by far, in both directions, and the moment bound lies
// between the exact hockey stick and a few times it.
func TestShiftOfOneNegativeBinomial(t *testing.T) {
	for _, c := range []struct{ eps, delta float64 }{{0.1, 1e-6}, {0.5, 1e-3}, {0.9, 1e-9}} {
		const top = 16
		n := noise{r: 3 * (1 + math.Log(1/c.delta)), s: 0.2 * c.eps / top}
		l := newLaw(n, top, 1e-13)
		for _, d := range []int64{top, -top} {
			exact := stick(l, c.eps, d)
			require.Less(t, exact, c.delta*1e-2)
			t.Logf("ε=%g δ=%g: closed form has δ = %.2g for a shift by %d", c.eps, c.delta, exact, d)
		}
		n.s *= 2.5
		n.r /= 2.4
		l = newLaw(n, top, c.delta*1e-3)
		for _, d := range []int64{top, -top} {
			exact, bound := stick(l, c.eps, d), math.Inf(1)
			for theta := 1.0; theta < 1000; theta *= 1.1 {
				scale := theta*math.Log(theta) - (1+theta)*math.Log1p(theta) - theta*c.eps
				bound = min(bound, l.missed(d < 0)+math.Exp(scale+l.moment(theta, d, d < 0)))
			}
			require.GreaterOrEqual(t, bound, exact)
			require.LessOrEqual(t, bound, 50*exact+2*l.missed(true))
		}
	}
}

// halved returns a design with half of every r but that of the central noise.
func halved(d design) *design {
	d.levels = append([]noise{}, d.levels...)
	for l := range d.levels {
		d.levels[l].r /= 2
	}
	d.pair.r /= 2
	return &d
}

func TestEveryPairComposedExactlyIsBelowTheBound(t *testing.T) {
	cases := []target{
		{top: 2, star: 0.45, eps: 1, delta: 1e-5},
		{top: 3, star: 0.3, eps: 1, delta: 1e-6},
		{top: 5, star: 0.2, eps: 1.2, delta: 1e-6},
		{top: 7, star: 0.1, eps: 1, delta: 1e-5, burst: 60},
		{top: 16, star: 0.9 / 16, eps: 1, delta: 1e-6},
	}
	if os.Getenv("DOONA_FULL") != "" {
		cases = append(cases, target{top: 16, star: 0.9 / 16, eps: 1, delta: 1e-6, burst: 150}, target{top: 37, star: 0.9 / 37, eps: 1, delta: 1e-8},
			target{top: 64, star: 0.9 / 64, eps: 1, delta: 1e-6})
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("Δ=%d/burst=%d", c.top, c.burst), func(t *testing.T) {
			d, ok := c.solve()
			require.True(t, ok)
			g := exactGrid{c.eps * 4 / 8192, 8192}
			exact, at := exactDelta(&d.design, c.eps, g, c.delta*1e-6)
			t.Logf("all pairs exactly: δ = %.3g at inputs %v, bound %.3g", exact, at, d.bound(c.eps, d.theta, d.miss))
			require.LessOrEqual(t, exact, d.bound(c.eps, d.theta, d.miss))
			require.LessOrEqual(t, d.bound(c.eps, d.theta, d.miss), c.delta)
			require.Greater(t, exact, c.delta/100, "the bound must not waste noise")
			weak, _ := exactDelta(halved(d.design), c.eps, g, c.delta*1e-6)
			require.Greater(t, weak, 2*c.delta, "half of every r")
			none := d.design
			none.levels = append([]noise{}, d.levels...)
			none.levels[0] = noise{r: 1, s: 10}
			weak, _ = exactDelta(&none, c.eps, g, c.delta*1e-6)
			require.Greater(t, weak, 2*c.delta, "almost no noise at level 0")
		})
	}
}

// Calibration and certificate at Δ = 4096, n = 10⁷; the time is printed.
func TestLargeDelta(t *testing.T) {
	start := time.Now()
	messages, derived, ok := Search(4096, 1, 1e-6, 0.9)
	took := time.Since(start)
	require.True(t, ok)
	require.LessOrEqual(t, derived, 1e-6)
	t.Logf("Δ = 4096: calibrated and certified in %v; %.2f zero-sum messages per user at n = 10⁷", took, messages/1e7)
	require.Less(t, messages/1e7, 10.0)
}

// At Δ = 16, n = 10⁶ the paper's closed form sends over ten messages of noise per user.
func TestClosedForm(t *testing.T) {
	d := tinyTask("sum", "full", "1", "1e-6", 1e6, 16)
	d.Rule = RuleTheorem2
	d.Params = append([]task.Param{{Key: "central", Value: down(0.9 / 16)}}, d.Params...)
	m, err := newMechanism(d)
	require.NoError(t, err)
	zeroSum, _ := m.Messages()
	t.Logf("closed form: %.1f zero-sum messages per user", zeroSum)
	require.InDelta(t, 14, zeroSum, 6)
	// It can be a task where there are few levels.
	d = tinyTask("sum", "full", "2", "1e-3", 1000, 2)
	d.Rule = RuleTheorem2
	require.NoError(t, CalibrateWith(d, Options{Share: 0.5}))
	opened, err := new(Protocol).Open(d)
	require.NoError(t, err)
	require.NoError(t, opened.CheckClaim())
	d.Claim.Epsilon = "0.99"
	opened, err = new(Protocol).Open(d)
	if err == nil {
		err = opened.CheckClaim()
	}
	require.Error(t, err)
}

// TestRareValuesWithLargeLossesCount: a task chooses θ and how rare a value T leaves out. Where jumps are
// bounded the loss grows without bound, and with a large θ values that are rarer than 2⁻⁵³ decide.
func TestRareValuesWithLargeLossesCount(t *testing.T) {
	n := noise{r: 20, jump: 30}
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

// Above Δ = 64 inputs are taken in classes: no pair may exceed what its classes were given.
func TestClassesCoverEveryPair(t *testing.T) {
	for _, c := range []target{{top: 100, star: 0.9 / 100, eps: 1, delta: 1e-6}, {top: 301, star: 0.45 / 301, eps: 1, delta: 1e-6, sparse: true, zero: true}} {
		d, ok := c.solve()
		require.True(t, ok)
		certificate := newCertificate(&d.design, c.eps, d.theta, d.miss)
		scale := d.theta*math.Log(d.theta) - (1+d.theta)*math.Log1p(d.theta) - d.theta*c.eps
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
		for i := range c.top + 1 {
			for j := range c.top + 1 {
				a, b := single(i), single(j)
				moment := a.sides[0].moment + b.sides[1].moment + scale
				missed := a.sides[0].missed + b.sides[1].missed + certificate.always[1]
				if i != j {
					worst = max(worst, missed+math.Exp(moment+certificate.central(&a, &b)))
				}
				if c.sparse {
					worst = max(worst, missed+certificate.always[1]+math.Exp(moment+certificate.central(&a, &zero)+certificate.central(&zero, &b)))
				}
			}
		}
		bound := d.bound(c.eps, d.theta, d.miss)
		t.Logf("Δ=%d: %.4g by classes, %.4g pair by pair", c.top, bound, worst)
		require.LessOrEqual(t, worst, bound)
		require.Greater(t, worst, bound/4)
	}
}
