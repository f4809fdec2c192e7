package splitmix

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The divergence of discrete Laplace noise against its shift is what the sum over all outcomes says.
func TestShiftedIsTheSum(t *testing.T) {
	for _, c := range []struct{ s, p float64 }{{.5, 2}, {.1, 10}, {.03, 41}, {1.5, 1}} {
		scale := (1 - math.Exp(-c.s)) / (1 + math.Exp(-c.s))
		for _, share := range []float64{0, .1, .35, .5, .9, .99, 1, 1.2} {
			eps, sum := share*c.s*c.p, 0.0
			for k := -2000.0; k <= 2000; k++ {
				p, q := scale*math.Exp(-c.s*math.Abs(k)), scale*math.Exp(-c.s*math.Abs(k-c.p))
				sum += math.Max(0, p-math.Exp(eps)*q)
			}
			require.InDelta(t, sum, shifted(c.s, c.p, eps), 1e-13, "s = %v, p = %v, ε = %v", c.s, c.p, eps)
		}
	}
}
