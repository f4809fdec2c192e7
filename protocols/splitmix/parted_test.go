package splitmix_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols/splitmix"
)

// Covers a first relay that fills one batch with all shares of some clients and some shares of others. From this batch
// alone a verifier must learn no more than the claim. The test enumerates every number k of complete clients and of
// other slots with which the batch has the n_min·m slots that relays require, and no second batch has them. Without the
// other slots, the claim must be broken.
func TestOneBatchOfPartedClientsIsPrivate(t *testing.T) {
	caught := 0
	for _, c := range []struct{ least, m, p, q uint64 }{{2, 8, 2, 4}, {2, 9, 1, 3}, {3, 6, 2, 4}, {3, 9, 1, 3},
		{4, 7, 1, 2}, {4, 8, 1, 3}} {
		for _, eps := range []float64{0.5, 1, 2} {
			claimed := min(1, splitmix.StatisticalDistance(splitmix.RuleComponents, c.least, c.m,
				c.q)*(1+math.Exp(eps)))
			for k := uint64(1); k < 2*c.least; k++ {
				missing := uint64(0)
				if k < c.least {
					missing = (c.least - k) * c.m
				}
				mix := tiny{k, c.m, c.p, c.q, eps / float64(c.p), 1 / float64(c.least), 0}
				require.LessOrEqual(t, mix.besides(missing).worstDelta(eps), claimed, "%+v, ε = %g, %d strays", mix,
					eps, missing)
				if k < c.least && mix.besides(0).worstDelta(eps) > claimed {
					caught++
				}
			}
		}
	}
	require.Equal(t, 26, caught, "of 36 batches without the other slots")
}

// A first relay that parts clients may learn more or less than from whole clients. Of all ways to put two messages mod
// 2 of each of four clients into two batches of four, some tell the values of clients 0 and 3 apart better than a batch
// of these two clients does, and some worse.
func TestPartingCanTellMoreOrLess(t *testing.T) {
	distance := func(slots [][2]int) float64 {
		return statisticalDistance(inBatches(2, slots, []uint64{0, 0, 0, 0}), inBatches(2, slots, []uint64{1, 0, 0, 1}))
	}
	most, least, groupings := 0.0, 1.0, 0
	vectors(4, 3, func(first []uint64) {
		parted, total, slots := false, uint64(0), [][2]int{}
		for _, n := range first {
			parted, total, slots = parted || n == 1, total+n, append(slots, [2]int{int(n), 2 - int(n)})
		}
		if parted && total == 4 {
			most, least = max(most, distance(slots)), min(least, distance(slots))
			groupings++
		}
	})
	require.Equal(t, 13, groupings)
	require.InDelta(t, 0.5, distance([][2]int{{2, 0}, {0, 2}, {0, 2}, {2, 0}}), 1e-12, "whole clients")
	require.InDelta(t, 0.625, distance([][2]int{{2, 0}, {1, 1}, {1, 1}, {0, 2}}), 1e-12, "batches 0012 and 1233")
	require.InDelta(t, 0.625, most, 1e-12)
	require.InDelta(t, 0.125, least, 1e-12)
}

// inBatches returns the joint distribution of the multisets of two batches, for clients with the values ys. Client i
// has slots[i][0] of its messages in the first batch and slots[i][1] in the second.
func inBatches(q uint64, slots [][2]int, ys []uint64) distribution {
	out := distribution{string(make([]byte, 2*q)): 1}
	for i, y := range ys {
		client, m := distribution{}, slots[i][0]+slots[i][1]
		vectors(m-1, q, func(free []uint64) {
			counts, last := make([]byte, 2*q), y
			for j := range m {
				v := (last%q + q) % q
				if j < m-1 {
					v = free[j]
					last += q - v
				}
				at := v
				if j >= slots[i][0] {
					at += q
				}
				counts[at]++
			}
			client[string(counts)] += math.Pow(float64(q), float64(1-m))
		})
		out = out.add(client)
	}
	return out
}
