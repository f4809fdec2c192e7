package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
)

// The tests send Gaussian reports that all have μ = stopMu, and allow one total δ.
const (
	stopMu      = .25
	stopReports = 30
	stopDelta   = 1e-6
)

// epsilonAt returns the ε at which the given number of reports together has the given δ.
func epsilonAt(reports int, delta float64) float64 {
	low, high := 0.0, 30.0
	for range 60 {
		mid := (low + high) / 2
		if d, _ := compose.GaussianDelta(float64(reports)*stopMu*stopMu, mid); d > delta {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// stopped returns the largest expectation of (1 − e^{charge(n)−L})₊ over all stopping rules. A rule looks at the losses
// so far and stops after n reports; L is the sum of their losses. stopped uses backward induction on a grid of losses.
func stopped(charge func(n int) float64) float64 {
	const step, least, most = 1.0 / 64, -12.0, 20.0
	size := int((most-least)/step) + 1
	loss := func(i int) float64 { return least + float64(i)*step }
	value := make([]float64, size)
	gain := func(n, i int) float64 { return math.Max(0, -math.Expm1(charge(n)-loss(i))) }
	for i := range value {
		value[i] = gain(stopReports, i)
	}
	reach := int(9 * stopMu / step)
	weights, total := make([]float64, 2*reach+1), 0.0
	for j := range weights {
		z := (float64(j-reach)*step)/stopMu - stopMu/2
		weights[j] = math.Exp(-z * z / 2)
		total += weights[j]
	}
	for n := stopReports - 1; n >= 0; n-- {
		next := make([]float64, size)
		for i := range next {
			for j, w := range weights {
				next[i] += w / total * value[min(max(i+j-reach, 0), size-1)]
			}
			if n > 0 {
				next[i] = math.Max(next[i], gain(n, i))
			}
		}
		value = next
	}
	return value[int(-least/step)]
}

// If the charged ε grows with the number of reports, an adversary who stops when the loss is high exceeds δ. The two
// charging plans of docs/proofs/budget.md must keep their δ (Lemma 6 there).
func TestChargesByTheNumberOfReports(t *testing.T) {
	all := epsilonAt(stopReports, stopDelta)
	follows := stopped(func(n int) float64 { return epsilonAt(max(n, 1), stopDelta) })
	t.Logf("composed so far: %.4g", follows)
	require.InEpsilon(t, 9.75e-6, follows, .01)

	require.InEpsilon(t, stopDelta, stopped(func(int) float64 { return all }), .02, "flat")

	const first = 1.0
	one, _ := compose.GaussianDelta(stopMu*stopMu, first)
	added := math.Floor(all / first)
	steps := stopped(func(n int) float64 {
		if float64(n) <= added {
			return float64(n) * first
		}
		return all
	})
	t.Logf("stepped: %.4g, of %.4g", steps, stopDelta+added*one)
	require.LessOrEqual(t, steps, (stopDelta+added*one)*1.02)
	require.Greater(t, steps, stopDelta*.98)
}
