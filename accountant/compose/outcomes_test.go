package compose_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
)

// randomPair returns the probabilities of some outcomes under P and under Q.
func randomPair(rng *rand.Rand) (p, q []float64) {
	sumP, sumQ := 0.0, 0.0
	for range 2 + rng.IntN(6) {
		x, y := rng.ExpFloat64(), rng.ExpFloat64()
		if rng.IntN(8) == 0 {
			x, y = x/1000, 0 // rare: the composition adds up infinite losses, which is accurate only if they are rare
		}
		p, q = append(p, x), append(q, y)
		sumP, sumQ = sumP+p[len(p)-1], sumQ+q[len(q)-1]
	}
	for i := range p {
		p[i], q[i] = p[i]/sumP, q[i]/max(sumQ, 1e-300)
	}
	return p, q
}

func hockeyStick(p, q []float64, eps float64) (sum float64) {
	for i := range p {
		sum += math.Max(0, p[i]-math.Exp(eps)*q[i])
	}
	return sum
}

// TestOutcomesDominate checks that the pair of [compose.Outcomes] is never below the true divergence, at positive and
// negative ε, on a coarse and a fine grid. The fine grid must raise it only slightly.
func TestOutcomesDominate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		p, q := randomPair(rng)
		for _, steps := range []int{3, 4096} {
			o := compose.NewOutcomes(4, steps)
			for i := range p {
				o.Add(p[i], q[i])
			}
			pair := o.Pair()
			for eps := -5.0; eps < 5; eps += .37 {
				want := hockeyStick(p, q, eps)
				require.GreaterOrEqual(t, pair.Delta(eps), want-1e-14)
				if steps > 1000 && eps > -4 && eps < 4 {
					largest := 0.0
					for i := range p {
						if p[i] > q[i]*math.Exp(4) {
							largest += math.Exp(eps) * q[i] // the pair counts this outcome as an infinite loss
						}
						if p[i] < q[i]*math.Exp(-4) {
							largest += p[i]
						}
					}
					require.InDelta(t, want, pair.Delta(eps), largest+1e-3)
				}
			}
		}
	}
}

// TestComposedOutcomesAreNotBelowEnumeration composes three different pairs. The result must be at least the δ found by
// enumerating every outcome.
func TestComposedOutcomesAreNotBelowEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 60 {
		var seen []compose.Observation
		allP, allQ := []float64{1}, []float64{1}
		for range 3 {
			p, q := randomPair(rng)
			o := compose.NewOutcomes(8, 1<<12)
			var nextP, nextQ []float64
			for i := range p {
				o.Add(p[i], q[i])
				for j := range allP {
					nextP, nextQ = append(nextP, allP[j]*p[i]), append(nextQ, allQ[j]*q[i])
				}
			}
			allP, allQ = nextP, nextQ
			seen = append(seen, compose.Observation{Pair: o.Pair(), Count: 1})
		}
		for _, eps := range []float64{.1, .5, 1, 3} {
			want := hockeyStick(allP, allQ, eps)
			got := compose.Delta(seen, eps, 1e-3)
			require.GreaterOrEqual(t, got, want*(1-1e-12))
			require.LessOrEqual(t, got, want+.02)
		}
	}
}
