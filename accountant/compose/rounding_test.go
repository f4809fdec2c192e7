package compose

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// roundingError must cover two transforms of the largest size, plus the roundings of one square and one product for
// each observation.
func TestRoundingErrorHasBothTransforms(t *testing.T) {
	require.Greater(t, roundingError, 2*4*math.Log2(1<<20)*0x1p-53+16*0x1p-53)
}
