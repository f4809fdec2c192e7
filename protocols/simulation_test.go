package protocols_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// TestSpread checks that Spread draws a multinomial distribution: each cell binomial, and every pair of cells as
// negatively correlated. Means and second moments must be within 6 standard errors. The squares of binomial numbers
// have at most 3 times the variance of a normal variable's squares.
func TestSpread(t *testing.T) {
	const runs = 20000
	src := randomizer.NewSource()
	for _, c := range []struct{ n, cells uint64 }{{3, 5}, {7, 1}, {40, 5}, {1000, 13}, {64, 64}} {
		t.Run(fmt.Sprintf("%d over %d", c.n, c.cells), func(t *testing.T) {
			mean, sums := float64(c.n)/float64(c.cells), make([]float64, c.cells)
			squares, products := 0.0, 0.0
			for range runs {
				counts, all := make([]float64, c.cells), uint64(0)
				protocols.Spread(src, c.n, c.cells, func(clients, cell uint64) {
					counts[cell] += float64(clients)
					all += clients
				})
				require.Equal(t, c.n, all)
				for i, count := range counts {
					sums[i] += count
				}
				first, last := counts[0]-mean, counts[c.cells-1]-mean
				squares += first * first
				products += first * last
			}
			variance := mean * (1 - 1/float64(c.cells))
			for i, sum := range sums {
				require.InDelta(t, mean, sum/runs, 6*math.Sqrt(variance/runs), i)
			}
			covariance := variance
			if c.cells > 1 {
				covariance = -mean / float64(c.cells)
			}
			require.InDelta(t, variance, squares/runs, 6*3*(variance+math.Sqrt(variance))/math.Sqrt(runs))
			require.InDelta(t, covariance, products/runs, 6*3*(variance+math.Sqrt(variance))/math.Sqrt(runs))
		})
	}
}
