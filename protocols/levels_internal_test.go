package protocols

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// sums returns the distribution of the sum of independent variables on 0, 1, 2, …, each with a number of copies.
func sums(laws [][]float64, copies []int) []float64 {
	out := []float64{1}
	for j, law := range laws {
		for n := copies[j]; n > 0; n /= 2 {
			if n%2 == 1 {
				out = together(out, law)
			}
			law = together(law, law)
		}
	}
	return out
}

// together returns the distribution of the sum of two independent variables.
func together(one, other []float64) []float64 {
	out := make([]float64, len(one)+len(other)-1)
	for a, p := range one {
		if p > 1e-30 {
			for b, q := range other {
				out[a+b] += p * q
			}
		}
	}
	return out
}

// client returns the distribution of one client's part of C in half levels, from -k to k: a value x, rounded to levels,
// by randomized response with probability 1/s, else 0.
func client(e levelSum, x float64) []float64 {
	k := int(e.K)
	out := make([]float64, 2*k+1)
	whole, f := math.Modf(x * float64(k))
	at := int(whole)
	out[2*at] += (1 - e.Gamma) * (1 - f) / e.Size
	if f > 0 {
		out[2*at+2] += (1 - e.Gamma) * f / e.Size
	}
	for y := range k + 1 {
		out[2*y] += e.Gamma / float64(k+1) / e.Size
	}
	out[k] += 1 - 1/e.Size
	return out
}

// withRounding adds step times the difference of two Poisson variables of this variance to a distribution on the whole
// numbers from 0. The result begins at -reach.
func withRounding(law []float64, rounding float64, step int) (out []float64, reach int) {
	if rounding == 0 {
		return law, 0
	}
	poisson := []float64{math.Exp(-rounding / 2)}
	for i := 1.0; i < rounding/2+12*math.Sqrt(rounding)+20; i++ {
		poisson = append(poisson, poisson[len(poisson)-1]*rounding/2/i)
	}
	reach = step * (len(poisson) - 1)
	levels := make([]float64, 2*reach+1)
	for i, p := range poisson {
		for j, q := range poisson {
			levels[step*(i-j)+reach] += p * q
		}
	}
	return sums([][]float64{law, levels}, []int{1, 1}), reach
}

// exactTail returns Pr[C ≥ c] of a group by convolution; rounding as the difference of two Poisson variables.
func (c worstClients) exactTail(e levelSum) float64 {
	law := sums([][]float64{client(e, c.value[0]), client(e, c.value[1])},
		[]int{int(c.clients[0]), int(c.clients[1])})
	law, reach := withRounding(law, c.rounding, 2) // A level is two half levels.
	half := 2 * float64(e.K)
	first := math.Ceil(e.Seen*half-1e-6) + e.Clients*float64(e.K) + float64(reach)
	tail := 0.
	for i := len(law) - 1; i >= 0 && float64(i) >= first; i-- {
		tail += law[i]
	}
	return tail
}

// TestLevelTails compares the tails that intervals use with exact convolutions, to 10⁻¹¹. The saddlepoint
// approximation, which serves 50 or more reports, must be between .8 and 1.3 times the exact tail where all clients
// have ends of the range.
func TestLevelTails(t *testing.T) {
	count := 0
	for _, e := range []levelSum{
		{K: 1, Gamma: .3, Clients: 30, Size: 1}, {K: 1, Gamma: .01, Clients: 20, Size: 1},
		{K: 4, Gamma: .02, Clients: 24, Size: 1}, {K: 7, Gamma: .005, Clients: 40, Size: 1},
		{K: 5, Gamma: .6, Clients: 12, Size: 1},
		{K: 1, Gamma: .05, Clients: 200, Size: 100}, {K: 1, Gamma: .05, Clients: 60, Size: 4},
		{K: 2, Gamma: .05, Clients: 200, Size: 100}, {K: 4, Gamma: .02, Clients: 100, Size: 20},
		{K: 3, Gamma: .2, Clients: 60, Size: 9}, {K: 1, Gamma: .05, Clients: 300, Size: 5},
		{K: 2, Gamma: .02, Clients: 300, Size: 5},
	} {
		for _, theta := range []float64{0, .3, 2, e.Clients / 3, e.Clients - 1, e.Clients} {
			for _, squares := range []float64{e.Clients / 4, e.Clients / 9, 0} {
				for _, high := range []bool{false, true} {
					e.Squares = squares
					count += compareTails(t, e, e.worst(theta, high), theta)
				}
			}
		}
	}
	t.Logf("%d tails", count)
	require.Greater(t, count, 500)
}

// compareTails compares the tails of a group, and returns how many.
func compareTails(t *testing.T, e levelSum, c worstClients, theta float64) (count int) {
	require.InDelta(t, theta, c.clients[0]*c.value[0]+c.clients[1]*c.value[1], 1e-9)
	require.InDelta(t, e.Clients, c.clients[0]+c.clients[1], 0)
	if e.Size > 1 {
		c.rounding = 0
	}
	approximate := e.Clients >= fewReports*e.Size && e.Size > 1
	if approximate && e.Squares != e.Clients/4 {
		return 0 // Between the ends, they have no lattice.
	}
	mean, deviation := (1-e.Gamma)*(theta-e.Clients/2)/e.Size, math.Sqrt(c.variance(e))
	for _, z := range []float64{-3, -1, 1, 2, 3, 4, 6} {
		step := 1 / float64(e.K) / e.steps()
		if approximate {
			step = .5
		}
		floor := c.floor(e) / float64(e.K)
		e.Seen = step*math.Ceil((mean+z*deviation-floor)/step) + floor
		want, got := c.exactTail(e), c.reached(e)
		switch {
		case !approximate:
			require.InDelta(t, want, got, 1e-11, "%+v θ %g, %+v", e, theta, c)
		case want > 1e-10 && want < .05: // No interval of 90 % or more depends on others.
			require.InDelta(t, 1.05, got/want, .25, "%+v θ %g: %g of %g", e, theta, got, want)
		default:
			continue
		}
		count++
	}
	return count
}

// TestLevelIntervalsInvertTails checks both ends of intervals by convolution: there, the larger tail of the two groups
// is half of the error. If clients are sampled, their Q must be that of the data and what chance may have left out.
func TestLevelIntervalsInvertTails(t *testing.T) {
	for _, e := range []levelSum{
		{K: 4, Gamma: .02, Clients: 24, Size: 1, Squares: 3, Seen: -2},
		{K: 4, Gamma: .1, Clients: 40, Size: 1, Squares: 6, Seen: 2.5},
		{K: 2, Gamma: .05, Clients: 200, Size: 10, Squares: 4, Seen: 3.5},
		{K: 1, Gamma: .2, Clients: 50, Size: 2, Squares: 12.5, Seen: -2},
	} {
		e.Width = 1
		e.Estimate = e.Clients/2 + e.Size*e.Seen/(1-e.Gamma)
		lo, hi := e.Interval(.95)
		e.Squares = min(e.Squares+Quantile(.95)*Quantile(.95)*(e.Size-1)/4, e.Clients/4)
		require.InDelta(t, .025, exactTails(t, e, lo), 1e-4, "%+v", e)
		e.Seen = -e.Seen
		require.InDelta(t, .025, exactTails(t, e, e.Clients-hi), 1e-4, "%+v", e)
	}
}

// exactTails returns the larger tail of the two groups. All their rounding must be what values with this sum can have
// at most.
func exactTails(t *testing.T, e levelSum, theta float64) (most float64) {
	for _, high := range []bool{false, true} {
		c := e.worst(theta, high)
		if e.K > 1 {
			rounding, share := c.rounding, min(.5, float64(e.K)*min(theta, e.Clients-theta)/e.Clients)
			for j, x := range c.value {
				if _, f := math.Modf(x * float64(e.K)); e.Size == 1 {
					rounding += c.clients[j] * f * (1 - f)
				}
			}
			require.InDelta(t, e.Clients*share*(1-share), rounding, 1e-9)
		}
		c.rounding *= e.shrunk()
		most = max(most, c.exactTail(e))
	}
	return most
}

// TestLevelIntervalsOfExtremeConfidence: beyond the confidence that tails can resolve, intervals must stay finite.
func TestLevelIntervalsOfExtremeConfidence(t *testing.T) {
	e := levelSum{K: 4, Gamma: .1, Clients: 40, Size: 1, Squares: 6, Seen: 2.5, Width: 1}
	lo, hi := e.Interval(1 - 2*least)
	for _, confidence := range []float64{1 - 1e-13, 1 - 5e-14, 1 - 1e-15, 1} {
		sameLo, sameHi := e.Interval(confidence)
		require.Equal(t, []float64{lo, hi}, []float64{sameLo, sameHi}, "%g", confidence)
	}
	require.Less(t, hi-lo, 40.)
}
