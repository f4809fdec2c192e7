package accountant_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
)

// responseMatrix returns the matrix Pr[R(x) = y] of k-ary randomized response.
func responseMatrix(k int, gamma float64) [][]float64 {
	rows := make([][]float64, k)
	for x := range rows {
		for y := range k {
			rows[x] = append(rows[x], respond(k, gamma, x, y))
		}
	}
	return rows
}

func TestFiniteIsExactForRandomizedResponse(t *testing.T) {
	for _, k := range []int{2, 4} {
		for _, users := range []uint64{1e3, 1e5, 1e8} {
			eps, err := accountant.KRREpsilon(accountant.Exact, uint64(k), .4, users, 1e-5)
			require.NoError(t, err)
			want, err := accountant.KRRDelta(accountant.Exact, uint64(k), .4, users, eps)
			require.NoError(t, err)
			got, excess, err := accountant.FiniteDelta(responseMatrix(k, .4), users, eps)
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, want*(1-2e-9))
			require.LessOrEqual(t, got-excess, want*(1+1e-9))
			require.InEpsilon(t, want, got, 1e-6)
		}
	}
}

// finiteWorst returns the largest δ(ε) over neighbouring inputs of n users, by enumerating every outcome of the
// shuffled randomizer.
func finiteWorst(rows [][]float64, n int, eps float64) float64 {
	law := func(inputs []int) map[int]float64 {
		law := map[int]float64{0: 1}
		for _, x := range inputs {
			next := map[int]float64{}
			for key, pr := range law {
				for y, q := range rows[x] {
					next[key+1<<(4*y)] += pr * q
				}
			}
			law = next
		}
		return law
	}
	worst := 0.0
	eachInput(len(rows), n-1, func(others []int) {
		for x := range rows {
			for y := range rows {
				worst = math.Max(worst, hockeyStick(law(append(others, x)), law(append(others, y)), eps))
			}
		}
	})
	return worst
}

func TestFiniteIsNotBelowTheShuffledMechanism(t *testing.T) {
	rows := [][]float64{{.6, .3, .1}, {.2, .5, .3}, {.25, .15, .6}}
	for n := 1; n <= 4; n++ {
		for _, eps := range []float64{0, .3, 1} {
			got, excess, err := accountant.FiniteDelta(rows, uint64(n), eps)
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, finiteWorst(rows, n, eps)-1e-12, "n=%d ε=%g", n, eps)
			require.Less(t, excess, .01*got)
		}
	}
}

func TestFiniteRejects(t *testing.T) {
	for want, rows := range map[string][][]float64{
		"invalid rows 0 inputs: want at least 2":                               nil,
		"invalid rows 1 inputs: want at least 2":                               {{.5, .5}},
		"invalid rows 1 outputs: want 2 to 64":                                 {{1}, {1}},
		"invalid rows 65 outputs: want 2 to 64":                                {make([]float64, 65), make([]float64, 65)},
		"invalid rows row 1: want probabilities that sum to 1":                 {{.5, .5}, {.4, .5}},
		"invalid rows row 1: want as many probabilities as in row 0":           {{.5, .5}, {1}},
		"invalid rows row 1: want probabilities of at least 0, not NaN":        {{.5, .5}, {math.NaN(), 1}},
		"invalid rows row 0: want probabilities of at least 0, not NaN":        {{-1, 2}, {.5, .5}},
		"invalid rows output 1: want an output possible for all inputs or for": {{.5, .5}, {1, 0}},
	} {
		_, _, err := accountant.FiniteDelta(rows, 10, 1)
		require.ErrorContains(t, err, want)
	}
}
