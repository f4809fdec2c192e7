package compose

import (
	"math"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon returns an ε > 0 at which [Delta] of all observations together is at most delta. It exceeds the smallest such
// ε by at most a relative 1e-5. It returns an error if infinite losses alone exceed delta, or if there is no such ε up
// to 1e5.
func Epsilon(seen []Observation, delta float64) (float64, error) {
	if !(delta > 0 && delta < 1) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1), "between 0 and 1")
	}
	none := invalid.Field("delta", decimal.Format(delta, -1), "above the probability of an infinite loss")
	excess := func(eps float64) float64 {
		derived := Delta(seen, eps, delta)
		if derived > delta { // the excess may be so small that the logarithm is 0
			return max(math.Log(derived/delta), 1e-16)
		}
		return math.Log(derived / delta)
	}
	high := guess(seen, delta)
	atHigh := excess(high)
	for ; !(atHigh <= 0); atHigh = excess(high) { // NaN is not ≤ 0, so the search goes on
		if high *= 1.25; !(high <= mostEpsilon) {
			return 0, none
		}
	}
	low := high / 1.25
	atLow := excess(low)
	for ; atLow <= 0; atLow = excess(low) {
		high, atHigh = low, atLow
		if low /= 2; low < leastEpsilon {
			return high, nil
		}
	}
	high = between(excess, low, high, math.Min(atLow, 50), math.Max(atHigh, -50))
	if !(Delta(seen, high, delta) <= delta) {
		return 0, none
	}
	return high, nil
}

// The largest and smallest ε that a search tries.
const (
	mostEpsilon  = 1e5
	leastEpsilon = 1e-9
)

// guess returns an approximate ε. It assumes that the total loss is Gaussian, with the mean and variance of the
// observations' losses.
func guess(seen []Observation, delta float64) float64 {
	tops := make([]float64, len(seen))
	for i, p := range seen {
		tops[i] = p.top(delta * 1e-4)
	}
	mean, sigma := newSum(seen, tops, func(i int) float64 { return tops[i] / 64 }).moments(0)
	return math.Max(leastEpsilon, mean+sigma*math.Sqrt(-2*math.Log(delta)))
}

// between returns the upper end of an interval of relative width 1e-5 in which f falls through 0. It uses the Illinois
// method (secant steps that halve the weight of an end kept twice), and bisection if that is slow.
func between(f func(float64) float64, low, high, atLow, atHigh float64) float64 {
	for step := 0; high-low > 1e-5*high; step++ {
		at := (low*atHigh - high*atLow) / (atHigh - atLow)
		if margin := 4e-6 * high; step%8 == 7 {
			at = (low + high) / 2
		} else {
			at = math.Min(math.Max(at, low+margin), high-margin)
		}
		if value := f(at); value <= 0 {
			high, atHigh, atLow = at, value, atLow/2
		} else {
			low, atLow, atHigh = at, value, atHigh/2
		}
	}
	return high
}

// Spend is the privacy cost of one task over all its epochs: together they are (Epsilon, Delta)-private.
type Spend struct {
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
}

// Adaptive returns the total cost of tasks if the owner may have chosen each task after seeing the previous results. It
// adds ε and δ, rounded up ([RRUV16], Theorem 3.6: a filter that stops at fixed sums of ε and δ). Do not compose laws
// in that case: [Delta] holds only for laws that are fixed beforehand (docs/proofs/loss-laws.md, Theorem 3).
//
// [RRUV16]: https://arxiv.org/abs/1605.08294
func Adaptive(tasks ...Spend) (total Spend) {
	for _, task := range tasks {
		total.Epsilon = (total.Epsilon + task.Epsilon) * (1 + 1e-15)
		total.Delta = (total.Delta + task.Delta) * (1 + 1e-15)
	}
	return total
}
