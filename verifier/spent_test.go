package verifier

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumsAreRoundedUp: a sum of costs must not be below the exact sum, and must be less than two float64 values above
// it.
func TestSumsAreRoundedUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	rounded := 0
	for range 10_000 {
		a, b := random.ExpFloat64(), random.ExpFloat64()*math.Pow(10, 8*random.Float64()-4)
		exact := new(big.Float).SetPrec(200).Add(big.NewFloat(a), big.NewFloat(b))
		sum := sumUp(a, b)
		require.GreaterOrEqual(t, new(big.Float).SetPrec(200).SetFloat64(sum).Cmp(exact), 0, "%v + %v", a, b)
		require.Negative(t, big.NewFloat(math.Nextafter(sum, 0)).Cmp(exact), "%v + %v", a, b)
		if sum != a+b {
			rounded++
		}
	}
	require.Greater(t, rounded, 1000)
	require.Equal(t, 3.0, sumUp(1, 2))
	require.Equal(t, 1.0, sumUp(1, 0))
}
