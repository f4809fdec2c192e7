package augmented

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRootsAreWhereTheLawIs checks the quantiles that root finds. Summed over the whole distribution, the probability
// up to a root must be at least the requested one. Slightly below the root it must be less.
func TestRootsAreWhereTheLawIs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + random.IntN(300)
		e := &errorLaw{&dummyLaw{sums: []float64{0}}, 0, 1, math.Exp(2 * random.NormFloat64())}
		total, scale := 0.0, float64(n)/(1+3*random.Float64())
		for i := range n {
			e.masses = append(e.masses, math.Exp(-math.Pow(float64(i-n/2)/scale, 2)))
			total += e.masses[i]
		}
		for i := range e.masses {
			e.masses[i] /= total
			e.sums = append(e.sums, e.sums[i]+e.masses[i])
			e.first -= e.masses[i] * float64(i)
		}
		for i, mass := range e.masses {
			e.variance += mass * math.Pow(e.first+float64(i), 2)
		}
		for _, p := range []float64{0.0005, 0.025, 0.3, 0.5, 0.975, 0.9995} {
			whole := func(x float64) (sum float64) {
				for i, mass := range e.masses {
					sum += mass * math.Erfc((e.first+float64(i)-x)/(e.sigma*math.Sqrt2)) / 2
				}
				return sum
			}
			x := e.root(p)
			require.GreaterOrEqual(t, whole(x), p-1e-12)
			require.Less(t, whole(x-3e-6*(1+math.Sqrt(e.Variance()))), p)
		}
	}
}
