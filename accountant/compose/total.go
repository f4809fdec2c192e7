package compose

import (
	"math"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon returns an ε > 0 at which [Delta] of all observations together is at most delta, within a relative 1e-5 of
// the least. It is an error if their infinite losses alone exceed delta, or if it finds no such ε.
func Epsilon(seen []Observation, delta float64) (float64, error) {
	if !(delta > 0 && delta < 1) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1), "between 0 and 1")
	}
	none := invalid.Field("delta", decimal.Format(delta, -1), "above the probability of an infinite loss")
	excess := func(eps float64) float64 {
		derived := Delta(seen, eps, delta)
		if derived > delta { // The excess may be so small that its logarithm is 0.
			return max(math.Log(derived/delta), 1e-16)
		}
		return math.Log(derived / delta)
	}
	high := guess(seen, delta)
	atHigh := excess(high)
	for ; !(atHigh <= 0); atHigh = excess(high) { // Do not keep NaN.
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

// The values of ε at which a search ends.
const (
	mostEpsilon  = 1e5
	leastEpsilon = 1e-9
)

// guess returns an approximate ε. It takes the loss to be Gaussian, with the observations' mean and variance.
func guess(seen []Observation, delta float64) float64 {
	tops := make([]float64, len(seen))
	for i, p := range seen {
		tops[i] = p.top(delta * 1e-4)
	}
	mean, sigma := newSum(seen, tops, func(i int) float64 { return tops[i] / 64 }).moments(0)
	return math.Max(leastEpsilon, mean+sigma*math.Sqrt(-2*math.Log(delta)))
}

// between returns the upper end of an interval of relative width 1e-5 in which f falls through 0. It uses the secant
// method with halved weight for a retained end (Illinois), and bisection where that is slow.
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

// Spend is what one task costs over all its epochs: it is (Epsilon, Delta)-private.
type Spend struct {
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
}

// Adaptive returns what tasks cost together if each may have been chosen after the results of the previous ones. They
// add up, rounded up ([RRUV16], Theorem 3.6, whose filter stops at fixed sums). Do not compose laws in that case:
// [Delta] holds for laws that are fixed beforehand (docs/proofs/loss-laws.md, Theorem 3).
//
// [RRUV16]: https://arxiv.org/abs/1605.08294
func Adaptive(tasks ...Spend) (total Spend) {
	for _, task := range tasks {
		total.Epsilon = (total.Epsilon + task.Epsilon) * (1 + 1e-15)
		total.Delta = (total.Delta + task.Delta) * (1 + 1e-15)
	}
	return total
}
