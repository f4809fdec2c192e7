package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

// law lists the outcomes of a pair, each with its probabilities under P and Q.
type law [][2]float64

// shuffledLaw enumerates the histograms of shuffled k-ary randomized response. The first user's value is 0 under P and
// 1 under Q; others lists the other users' values.
func shuffledLaw(k int, gamma float64, others []int) law {
	counts := map[int][2]float64{0: {1, 1}}
	for i := range len(others) + 1 {
		next := map[int][2]float64{}
		for key, pr := range counts {
			for y := range k {
				x, x2 := 0, 1
				if i > 0 {
					x, x2 = others[i-1], others[i-1]
				}
				at := next[key+1<<(4*y)]
				at[0] += pr[0] * respond(k, gamma, x, y)
				at[1] += pr[1] * respond(k, gamma, x2, y)
				next[key+1<<(4*y)] = at
			}
		}
		counts = next
	}
	var l law
	for _, pr := range counts {
		l = append(l, pr)
	}
	return l
}

func respond(k int, gamma float64, x, y int) float64 {
	pr := gamma / float64(k)
	if x == y {
		pr += 1 - gamma
	}
	return pr
}

// product returns the law of two independent outcomes.
func (l law) product(other law) law {
	var out law
	for _, a := range l {
		for _, b := range other {
			out = append(out, [2]float64{a[0] * b[0], a[1] * b[1]})
		}
	}
	return out
}

func (l law) delta(eps float64) float64 {
	forward, backward := 0.0, 0.0
	for _, pr := range l {
		forward += math.Max(0, pr[0]-math.Exp(eps)*pr[1])
		backward += math.Max(0, pr[1]-math.Exp(eps)*pr[0])
	}
	return math.Max(forward, backward)
}

func TestCompositionIsNotBelowEnumeration(t *testing.T) {
	for _, k := range []int{2, 3} {
		for _, gamma := range []float64{.3, .7} {
			for _, others := range [][]int{{}, {0}, {0, 1}, {0, 0}, {1, 1, 1}, {0, 1, k - 1}} {
				pair, err := compose.KRR(accountant.Exact, uint64(k), gamma, uint64(len(others)+1), 1e-12, 200)
				require.NoError(t, err)
				one := shuffledLaw(k, gamma, others)
				product := one
				for times := 1; times <= 3; times++ {
					if times > 1 {
						product = product.product(one)
					}
					c, err := compose.Repeat(pair, times)
					require.NoError(t, err)
					for _, eps := range []float64{0, .1, .5, 1, 2, 3} {
						require.GreaterOrEqual(t, c.Delta(eps), product.delta(eps)-1e-13,
							"k=%d γ=%g others=%v times=%d ε=%g", k, gamma, others, times, eps)
					}
				}
			}
		}
	}
}

// blanketPair enumerates the pair of rule exact: the adversary knows the blanket bits of all users except the target.
func blanketPair(k int, gamma float64, n int) law {
	counts := map[int]float64{0: 1}
	for range n - 1 {
		next := map[int]float64{}
		for key, pr := range counts {
			next[key+1<<(4*k)] += pr * (1 - gamma)
			for y := range k {
				next[key+1<<(4*y)] += pr * gamma / float64(k)
			}
		}
		counts = next
	}
	out := map[int][2]float64{}
	for key, pr := range counts {
		for y := range k {
			at := out[key+1<<(4*y)]
			at[0] += pr * respond(k, gamma, 0, y)
			at[1] += pr * respond(k, gamma, 1, y)
			out[key+1<<(4*y)] = at
		}
	}
	var l law
	for _, pr := range out {
		l = append(l, pr)
	}
	return l
}

func TestCompositionIsTight(t *testing.T) {
	pair, err := compose.KRR(accountant.Exact, 3, .5, 4, 1e-12, 1500)
	require.NoError(t, err)
	one := blanketPair(3, .5, 4)
	for times, product := 1, one; times <= 2; times, product = times+1, product.product(one) {
		c, err := compose.Repeat(pair, times)
		require.NoError(t, err)
		for _, eps := range []float64{0, .2, .6, 1} {
			want := product.delta(eps)
			require.GreaterOrEqual(t, c.Delta(eps), want-1e-13)
			require.InEpsilon(t, want, c.Delta(eps), 5e-3, "times=%d ε=%g", times, eps)
		}
	}
}

func TestOneReleaseIsTheCurve(t *testing.T) {
	pair, err := compose.KRR(accountant.Exact, 10, .5, 1e6, 1e-14, 1000)
	require.NoError(t, err)
	c, err := compose.Repeat(pair, 1)
	require.NoError(t, err)
	for _, delta := range []float64{1e-3, 1e-6, 1e-9} {
		eps, err := accountant.KRREpsilon(accountant.Exact, 10, .5, 1e6, delta)
		require.NoError(t, err)
		require.GreaterOrEqual(t, c.Delta(eps), delta*(1-1e-9))
		require.InEpsilon(t, delta, c.Delta(eps), 1e-2)
		require.InEpsilon(t, delta, pair.Delta(eps), 1e-2)
	}
}

// The ε of T releases must grow like √T and stay below basic and advanced composition.
func TestCompositionBeatsTheTheorems(t *testing.T) {
	const times, delta = 50, 1e-6
	pair, err := compose.KRR(accountant.Exact, 10, .5, 1e6, 1e-13, 250)
	require.NoError(t, err)
	c, err := compose.Repeat(pair, times)
	require.NoError(t, err)
	got, err := c.Epsilon(delta)
	require.NoError(t, err)
	single, err := accountant.KRREpsilon(accountant.Exact, 10, .5, 1e6, delta/times/2)
	require.NoError(t, err)
	basic, _ := compose.Basic(single, delta/times/2, times)
	advanced, total := compose.Advanced(single, delta/times/2, delta/2, times)
	require.LessOrEqual(t, total, delta*(1+1e-12))
	require.Less(t, got, advanced)
	require.Less(t, got, basic)
	one, err := accountant.KRREpsilon(accountant.Exact, 10, .5, 1e6, delta)
	require.NoError(t, err)
	require.InEpsilon(t, one*math.Sqrt(times), got, .25)
}

func TestDeepTail(t *testing.T) {
	pair, err := compose.KRR(accountant.Exact, 10, .5, 1e6, 1e-40, 1000)
	require.NoError(t, err)
	c, err := compose.Repeat(pair, 4)
	require.NoError(t, err)
	eps, err := c.Epsilon(1e-30)
	require.NoError(t, err)
	require.InEpsilon(t, 1e-30, c.Delta(eps), .1)
}

func TestComposeRejects(t *testing.T) {
	_, err := compose.FromCurve(nil, 0, 10)
	require.ErrorContains(t, err, "top")
	pair, err := compose.KRR(accountant.Exact, 3, .5, 10, 1e-3, 50)
	require.NoError(t, err)
	_, err = compose.Repeat(pair, 0)
	require.Error(t, err)
	c, err := compose.Repeat(pair, 2)
	require.NoError(t, err)
	_, err = c.Epsilon(1e-9)
	require.ErrorContains(t, err, "beyond the grid")
	_, err = compose.KRR(accountant.Exact, 1, .5, 10, 1e-3, 50)
	require.ErrorContains(t, err, "k")
}
