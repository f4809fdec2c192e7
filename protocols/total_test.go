package protocols_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Added claims must not be below the decimals' multiples: 30·1e-6 is 2.9999999999999997e-05 in binary.
func TestSumsOfClaims(t *testing.T) {
	for _, c := range []struct {
		epsilon, delta string
		epochs         uint64
		want           [2]float64
	}{
		{"1", "1e-6", 30, [2]float64{30, 3e-5}},
		{"0.1", "1e-6", 3, [2]float64{.3, 3e-6}},
		{"1.1", "7e-9", 800, [2]float64{880, 5.6e-6}},
		{"0.12345678", "1.2345678e-8", 65536, [2]float64{8090.86353408, 8.0908635340800e-4}},
	} {
		sum := protocols.AddedClaims(task.NewClaim(c.epsilon, c.delta), c.epochs)
		require.Equal(t, c.want, [2]float64{sum.Epsilon, sum.Delta}, "%+v", c)
	}
	// As float64 numbers, these decimals are 1 and 1e-6.
	long := protocols.AddedClaims(task.NewClaim("1.0000000000000001", "1.00000000000000009e-6"), 3)
	require.Greater(t, long.Epsilon, 3.0000000000000003)
	require.Greater(t, long.Delta, 3.0000000000000003e-6)
	require.InEpsilon(t, 3, long.Epsilon, 2e-14)
}
