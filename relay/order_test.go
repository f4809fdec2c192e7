package relay_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/relaytest"
	"github.com/doona-dp/doona/task"
)

// TestSealedOrder posts reports one after the other and correlates their order in the sealed
// batch with that of their arrival. Under a uniform permutation of n = 300 the rank correlation
// has mean 0 and standard deviation 1/√(n-1) = 0.058; 0.35 is six of them: one false alarm in
// 5·10⁸ runs.
func TestSealedOrder(t *testing.T) {
	const n = 300
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = n }})
	c.StartAll(t)
	for i := range n {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	values := c.Values(t, 0, batch)[0]
	require.ElementsMatch(t, span(0, n), values)
	sum := 0.0
	for rank, v := range values {
		sum += math.Pow(float64(rank)-float64(v), 2)
	}
	rho := 1 - 6*sum/(n*(n*n-1))
	require.Less(t, math.Abs(rho), 0.35)
}
