package vectorsum

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeastGammaIsThatOfBisection compares leastGamma with plain bisection, for functions that fall steeply, slowly, in
// steps, or nowhere. It must evaluate them less than half as often.
func TestLeastGammaIsThatOfBisection(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 4))
	few, many := 0, 0
	for i := range 400 {
		hi, power, edge := .01+.98*r.Float64(), 1+30*r.Float64(), math.Exp(-12*r.Float64())
		excess := func(gamma float64) float64 {
			at := math.Log(edge * hi / gamma)
			switch i % 4 {
			case 1:
				at = power*at + 20*at*math.Abs(at)
			case 2:
				at = math.Floor(8*at) + .5
			default:
				at *= power
			}
			return min(max(at, -mostExcess), mostExcess)
		}
		low, high := 0.0, hi
		for range 60 {
			mid := math.Sqrt(math.Max(low, high*0x1p-8) * high)
			if mid >= high*(1-0x1p-16) || mid < 0x1p-39 {
				break
			}
			if many++; excess(mid) <= 0 {
				high = mid
			} else {
				low = mid
			}
		}
		found := leastGamma(hi, func(gamma float64) float64 {
			few++
			return excess(gamma)
		})
		require.Equal(t, high, found, "function %d", i)
	}
	require.Less(t, 2*few, many)
	t.Logf("%d evaluations, %d by bisection", few, many)
}
