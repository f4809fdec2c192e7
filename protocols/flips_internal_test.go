package protocols

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// flippedClient returns the distribution of the sum of the numbers that a client reports, if its level is whole+1 with
// probability up, else whole.
func flippedClient(e flippedLevels, whole, up float64) []float64 {
	k := int(e.K)
	bits := func(level int) []float64 {
		law := []float64{1}
		for bit := 1; bit <= k; bit++ {
			one := make([]float64, bit+1)
			one[0], one[bit] = 1-e.Flip, e.Flip
			if bit == level {
				one[0], one[bit] = e.Flip, 1-e.Flip
			}
			law = together(law, one)
		}
		return law
	}
	out := bits(int(whole))
	if up > 0 {
		for i, p := range bits(int(whole) + 1) {
			out[i] = (1-up)*out[i] + up*p
		}
	}
	return out
}

// exactFlips returns Pr[S ≥ seen] by convolution.
func exactFlips(e flippedLevels, h holders, seen float64) (tail float64) {
	one, two := h.groups[0], h.groups[1]
	law := sums([][]float64{flippedClient(e, one.level, one.up), flippedClient(e, two.level, two.up),
		flippedClient(e, 0, 0)}, []int{int(one.clients), int(two.clients), int(e.Clients - one.clients - two.clients)})
	law, reach := withRounding(law, h.rounding, 1)
	for i := len(law) - 1; i >= 0 && float64(i-reach) >= seen; i-- {
		tail += law[i]
	}
	return tail
}

// TestFlipTails compares the tails that intervals use with exact convolutions, to 10⁻¹¹, and the saddlepoint
// approximation, to a fifth of tails from .05 down to 10⁻⁸, where at least 30 bits are flipped on average.
func TestFlipTails(t *testing.T) {
	tails, saddles := 0, 0
	for _, e := range []flippedLevels{
		{K: 1, Flip: .01, Clients: 30}, {K: 2, Flip: .2, Clients: 20}, {K: 3, Flip: .002, Clients: 30},
		{K: 4, Flip: .05, Clients: 24}, {K: 8, Flip: .01, Clients: 12}, {K: 6, Flip: .2, Clients: 30},
		{K: 5, Flip: .1, Clients: 60},
	} {
		flips := e.flips()
		many := &flipLaw{e: e} // As if there were too many points.
		for _, theta := range []float64{0, .3, 2, e.Clients / 3, e.Clients - 1, e.Clients} {
			for _, h := range []holders{e.equal(theta), e.atEnds(theta)} {
				sum := 0.
				for _, g := range h.groups {
					sum += g.clients * (g.level + g.up)
				}
				require.InDelta(t, theta*float64(e.K), sum, 1e-9)
				at := flips.generating(h, 0)
				for _, off := range []float64{-6, -3, -1, -.2, 0, .4, 2, 4, 8} {
					seen := math.Ceil(float64(e.K) * (at.first + off*math.Sqrt(at.second)))
					exact := exactFlips(e, h, seen)
					require.InDelta(t, exact, flips.reached(h, seen), 1e-11, "%+v θ = %g, %g", e, theta, seen)
					tails++
					if exact > 1e-8 && exact < .05 && e.Clients*float64(e.K)*e.Flip >= 30 {
						require.InEpsilon(t, exact, many.reached(h, seen), .2, "%+v θ = %g, %g", e, theta, seen)
						saddles++
					}
				}
			}
		}
	}
	t.Logf("%d tails, %d saddlepoints", tails, saddles)
	require.Greater(t, tails, 600)
	require.Greater(t, saddles, 40)
}

// TestFlipIntervalsInvertTails: each end of an interval is where the larger of the two groups' exact tails is half of
// 1-confidence.
func TestFlipIntervalsInvertTails(t *testing.T) {
	for _, e := range []flippedLevels{
		{K: 4, Flip: .01, Clients: 20, Width: 1}, {K: 2, Flip: .1, Clients: 30, Width: 1},
	} {
		k := float64(e.K)
		for _, e.Seen = range []float64{0, 3, k * e.Clients / 2, k*e.Clients - 5, k * e.Clients, k*e.Clients + 4} {
			e.Estimate = (e.Seen - e.Clients*e.Flip*k*(k+1)/2) / (k * (1 - 2*e.Flip))
			const miss = .001
			lo, hi := e.Interval(1 - miss)
			exact := func(theta, side float64) (worst float64) {
				for _, h := range []holders{e.equal(theta), e.atEnds(theta)} {
					p := exactFlips(e, h, e.Seen+(1-side)/2)
					if side < 0 {
						p = 1 - p
					}
					worst = max(worst, p)
				}
				return worst
			}
			for side, end := range map[float64]float64{1: lo, -1: hi} {
				if end > .1 && end < e.Clients-.1 {
					require.Greater(t, exact(end+.05*side, side), miss/2, "%+v: %g", e, end)
					require.Less(t, exact(end-.05*side, side), miss/2, "%+v: %g", e, end)
				}
			}
			require.LessOrEqual(t, lo, e.Estimate+1e-9)
			require.GreaterOrEqual(t, hi, e.Estimate-1e-9)
		}
	}
}
