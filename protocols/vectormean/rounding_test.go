package vectormean

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
)

// Rounds four fractions together 40,000 times. The sum must be one of the two adjacent whole numbers, and means must be
// kept. No two fractions may both be rounded up more often than if they were independent. Each of the 10 checks allows
// 5.5 standard errors: together they fail by chance once in 10⁶ runs.
func TestDependentRounding(t *testing.T) {
	const draws = 40_000
	fractions := []float64{0.3, 0.9, 0.05, 0.6}
	src := randomizer.NewSource()
	var up [4]float64
	var both [4][4]float64
	for range draws {
		f := make([]uint64, 4)
		for k, v := range fractions {
			f[k] = uint64(v * one)
		}
		roundTogether(src, f)
		total := uint64(0)
		for j := range f {
			require.True(t, f[j] == 0 || f[j] == one)
			total += f[j] / one
			up[j] += float64(f[j] / one)
			for k := range j {
				both[j][k] += float64(f[j] / one * (f[k] / one))
			}
		}
		require.True(t, total == 1 || total == 2, "of 1.85")
	}
	for j, p := range fractions {
		require.InDelta(t, p, up[j]/draws, 5.5*math.Sqrt(p*(1-p)/draws))
		for k := range j {
			q := p * fractions[k]
			require.LessOrEqual(t, both[j][k]/draws, q+5.5*math.Sqrt(q*(1-q)/draws))
		}
	}
}

// Checks the bound on ln E[e^{a‖x‖²}] for vectors of norm s: flat ones, ones with one large entry, and random ones. The
// bound must hold, and exceed the largest logarithm among them by at most a third (much less for several coordinates).
func TestRoundingMoment(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		size int
		s, a float64
	}{{1, 1, 0.5}, {2, 3, 0.1}, {16, 11.5, 0.02}, {64, 13, 0.01}, {64, 3, 0.2}, {4, 60, 0.0005}} {
		m := &Mechanism{size: c.size, units: c.s}
		bound, worst := m.roundingMoment(c.a, c.s*c.s), 0.0
		for trial := range 3000 {
			v := gaussian(rng, c.size)
			for l := range v {
				if trial%3 == 0 {
					v[l] = 1 / math.Sqrt(float64(c.size)) * (1 + 0.2*rng.Float64())
				} else if trial%3 == 1 && l > 0 {
					v[l] *= 0.1
				}
			}
			scale := c.s / norm(v)
			moment := 0.0
			for _, x := range v {
				y, f := math.Modf(math.Abs(x) * scale)
				moment += math.Log((1-f)*math.Exp(c.a*y*y) + f*math.Exp(c.a*(y+1)*(y+1)))
			}
			worst = max(worst, moment)
			require.LessOrEqual(t, moment, bound)
		}
		require.Greater(t, worst, 0.75*bound, "%+v", c)
	}
}

// If its quadratic overflows, excess must return +Inf. Before that, it must be above the function that it bounds.
func TestRoundingMomentOverflows(t *testing.T) {
	m := &Mechanism{size: 1, units: 1}
	for a := 1.0; a < 1e4; a *= 1.1 {
		for _, alpha := range []float64{a, 3 * a, 8 * a} {
			bound := m.excess(a, alpha)
			for f := 0.0; f <= 1; f += 1e-3 {
				x := a + math.Log(f+(1-f)*math.Exp(-a)) - alpha*f*f // ln(1 - f + f·e^a) - α·f²
				require.GreaterOrEqual(t, bound, x-1e-12*a, "a = %v, α = %v, f = %v", a, alpha, f)
			}
			if a > 400 {
				require.True(t, math.IsInf(bound, 1), "a = %v, α = %v", a, alpha)
			}
		}
	}
}

// The chords of the moment bound, which is evaluated only at powers of 1.1, are close to the bound itself.
func TestMomentsBetweenPowers(t *testing.T) {
	for _, m := range []*Mechanism{{size: 1, units: 1}, {size: 16, units: 11.5}, {size: 64, units: 40}} {
		c := &curve{m: m, moments: make([]float64, 2*momentSteps+2)}
		for a := 1e-6; a < .1/m.units; a *= 1.07 {
			bound := m.roundingMoment(a, m.square())
			require.GreaterOrEqual(t, c.moment(a), bound*.999, "%d, %v", m.size, a)
			require.LessOrEqual(t, c.moment(a), bound*1.002, "%d, %v", m.size, a)
		}
		require.True(t, math.IsNaN(c.moment(math.NaN())) && math.IsNaN(c.moment(0)))
	}
}
