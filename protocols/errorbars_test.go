package protocols_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
)

// binomial returns the probabilities of Bin(n, p) on 0..n, by n convolutions.
func binomial(n int, p float64) []float64 {
	out := []float64{1}
	for range n {
		out = convolve(out, []float64{1 - p, p})
	}
	return out
}

func convolve(a, b []float64) []float64 {
	out := make([]float64, len(a)+len(b)-1)
	for i, x := range a {
		for j, y := range b {
			out[i+j] += x * y
		}
	}
	return out
}

// tails returns Pr[N ≤ s] and Pr[N ≥ s] for every s of a distribution.
func tails(law []float64) (below, above []float64) {
	below, above = make([]float64, len(law)), make([]float64, len(law))
	sum := 0.0
	for s, p := range law {
		sum += p
		below[s] = sum
	}
	sum = 0
	for s := len(law) - 1; s >= 0; s-- {
		sum += law[s]
		above[s] = sum
	}
	return below, above
}

// TestCellsAreExact checks intervals against the exact distribution of N. For a true count ν, the tail of a number s is
// the smaller of Pr[N ≤ s] and Pr[N ≥ s]. The interval must contain ν if the numbers whose tail is at most the seen
// number's have a total probability above 1-confidence. It must not contain ν if the seen number's tail is below half
// of 1-confidence. Between these limits it may contain ν only rarely, because a ν further out is in it. If the variance
// is large, nothing is between. A tail within 1 % of a limit may go either way, because the normal distribution takes
// over.
func TestCellsAreExact(t *testing.T) {
	between, held := 0, 0
	for _, c := range []struct {
		users      int
		own, other float64
		margin     float64
	}{
		{1, 0.9, 0.2, 1e-6}, {20, 0.9, 0.01, 1e-6}, {200, 0.95, 0.002, 1e-6}, {300, 0.7, 0.3, 1e-6},
		{400, 0.999, 0.0001, 1e-6}, {500, 0.96, 0.04, 1e-6}, {500, 0.9, 0.1, 1e-6},
		{2500, 0.75, 0.25, 0.01}, {2200, 0.7, 0.4, 0.01},
	} {
		for _, nu := range []int{0, 1, c.users / 3, c.users - 1, c.users} {
			law := convolve(binomial(nu, c.own), binomial(c.users-nu, c.other))
			below, above := tails(law)
			for _, confidence := range []float64{0.95, 0.999} {
				missed := 0.0
				for seen, p := range law {
					if p < 1e-9 {
						continue
					}
					tail := math.Min(below[seen], above[seen])
					least, each := 0.0, 2*tail/(1-confidence)
					for s, q := range law {
						if math.Min(below[s], above[s]) <= tail*(1+1e-9) {
							least += q / (1 - confidence)
						}
					}
					cell := protocols.Cell{Seen: uint64(seen), Users: uint64(c.users), Own: c.own, Other: c.other}
					lo, hi := cell.Interval(confidence)
					require.LessOrEqual(t, lo, hi)
					inside := lo <= float64(nu)+1e-6 && float64(nu)-1e-6 <= hi
					switch {
					case least > 1+c.margin:
						require.True(t, inside, "%+v, ν = %d, [%g, %g], %g", cell, nu, lo, hi, least)
					case each < 1-c.margin:
						require.False(t, inside, "%+v, ν = %d, [%g, %g], %g", cell, nu, lo, hi, each)
					case c.margin < 0.01 && math.Abs(least-1) > c.margin && each > 1+c.margin:
						between++
						if inside {
							held++
						}
					}
					if !inside {
						missed += p
					}
				}
				require.LessOrEqual(t, missed, (1-confidence)*(1+c.margin), "%+v, ν = %d", c, nu)
			}
		}
	}
	t.Logf("of %d counts between the limits, intervals contain %d", between, held)
	require.Less(t, 4*held, between)
}

// TestNoiseIsExact checks that Reach is the quantile of the exact distribution, which the test computes by convolution.
func TestNoiseIsExact(t *testing.T) {
	for _, s := range []float64{0.05, 1, 4} {
		for _, clients := range []uint64{0, 1, 2, 25} {
			law := make([]float64, 4001) // discrete Laplace probabilities, with value 0 in the middle
			for k := range law {
				law[k] = math.Exp(-s*math.Abs(float64(k-2000))) * math.Tanh(s/2)
			}
			law = convolve(law, binomial(int(clients), 0.5))
			noise := &protocols.Noise{}
			noise.AddPolya(1, s)
			noise.AddHalves(clients)
			variance := 0.0
			for k, p := range law {
				at := float64(k) - 2000 - float64(clients)/2
				variance += p * at * at
			}
			require.InEpsilon(t, variance, noise.Variance(), 1e-9)
			for _, confidence := range []float64{0.5, 0.95, 0.999, 1 - 1e-6} {
				within := func(q float64) (sum float64) {
					for k, p := range law {
						if math.Abs(float64(k)-2000-float64(clients)/2) <= q {
							sum += p
						}
					}
					return sum
				}
				reach := noise.Reach(confidence)
				require.GreaterOrEqual(t, within(reach), confidence-1e-12, "s = %g, %d clients", s, clients)
				require.Less(t, within(reach-1), confidence+1e-12, "s = %g, %d clients, reach %g", s, clients, reach)
			}
		}
	}
}

// TestNoiseOfPolyaAndBinomials checks that parts of a Noise add up. Pólya(2, ·) must equal twice Pólya(1, ·). The
// difference of two Bin(n, ½) must equal Bin(2n, ½) - n.
func TestNoiseOfPolyaAndBinomials(t *testing.T) {
	var whole, halves protocols.Noise
	whole.AddPolya(2, 0.3)
	halves.AddPolya(1, 0.3)
	halves.AddPolya(1, 0.3)
	require.InDelta(t, halves.Reach(0.95), whole.Reach(0.95), 0)

	var pair, bits protocols.Noise
	pair.AddBinomials(50, 0.5)
	bits.AddHalves(100)
	for _, confidence := range []float64{0.9, 0.95, 0.9999} {
		require.InDelta(t, bits.Reach(confidence), pair.Reach(confidence), 0)
	}
	require.InDelta(t, 25, pair.Variance(), 1e-12)
	require.InDelta(t, 25, bits.Variance(), 1e-12)
}

// TestNormalInterval checks that ±1.96 standard errors contain 95 % of a normal distribution, and that an interval
// reaches half a step further on either side.
func TestNormalInterval(t *testing.T) {
	lo, hi := protocols.Normal{Estimate: 3, Plugged: 4}.Interval(0.95)
	require.InDelta(t, 3-2*1.959964, lo, 1e-6)
	require.InDelta(t, 3+2*1.959964, hi, 1e-6)
	_, hi = protocols.Normal{Plugged: 1, Step: 0.5}.Interval(0.95)
	require.InDelta(t, 1.959964+0.25, hi, 1e-5)
}

// TestRoundedLevels checks the variance estimate for clients with equal values. On average it must be the formula's
// variance, with rounding at its worst if there are more than two levels.
func TestRoundedLevels(t *testing.T) {
	const n = 10_000.0
	for _, k := range []uint64{1, 2, 7} {
		for _, gamma := range []float64{0.01, 0.4} {
			for _, x := range []float64{0, 0.1, 0.5, 1} {
				levels := float64(k)
				mean := n * ((1-gamma)*x*levels + gamma*levels/2)
				_, f := math.Modf(x * levels)
				second := n * ((1-gamma)*(x*x*levels*levels+f*(1-f)) + gamma*levels*(2*levels+1)/6)
				l := protocols.RoundedLevels{K: k, Gamma: gamma, Reports: n, Sum: mean, Squares: second}
				want := n * protocols.RoundedVariance(gamma, k, x) / ((1 - gamma) * (1 - gamma))
				if k > 1 { // the levels do not show how far values are from them
					want += n * (0.25 - f*(1-f)) / (levels * levels)
				}
				require.InEpsilon(t, want, l.Variance(), 1e-9, "k %d, γ %g, x %g", k, gamma, x)
				require.InDelta(t, x, l.Mean(), 1e-12)
			}
		}
	}
}

// TestCellsNextToNoNoise checks counts with almost no noise: a report differs from its value only once in 10¹³. The
// interval must be nearly a point, and no search for its ends may loop forever.
func TestCellsNextToNoNoise(t *testing.T) {
	for _, cell := range []protocols.Cell{
		{Seen: 0, Users: 1, Own: 1 - 4e-14, Other: 1e-14},
		{Seen: 1, Users: 1, Own: 1 - 4e-14, Other: 1e-14},
		{Seen: 3, Users: 7, Own: 1 - 4e-14, Other: 1e-14},
	} {
		for _, confidence := range []float64{.95, 1 - .05/43200} {
			lo, hi := cell.Interval(confidence)
			require.InDelta(t, cell.Seen, lo, 1, "%+v", cell)
			require.InDelta(t, cell.Seen, hi, 1, "%+v", cell)
		}
	}
}
