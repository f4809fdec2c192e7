package compose

import (
	"math"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Epsilon returns an ε > 0 at which [Delta] of all observations together is at most delta, within a relative
// 1e-5 of the least. It is an error if their infinite losses alone are more, or if no such ε is found.
func Epsilon(seen []Observation, delta float64) (float64, error) {
	if !(delta > 0 && delta < 1) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1), "between 0 and 1")
	}
	none := invalid.Field("delta", decimal.Format(delta, -1), "above the probability of an infinite loss")
	excess := func(eps float64) float64 {
		derived := Delta(seen, eps, delta)
		if derived > delta { // By next to nothing, perhaps, of which the logarithm is 0.
			return max(math.Log(derived/delta), 1e-16)
		}
		return math.Log(derived / delta)
	}
	high := guess(seen, delta)
	atHigh := excess(high)
	for ; !(atHigh <= 0); atHigh = excess(high) { // What is no number is not kept.
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

// Epsilons that a search ends at.
const (
	mostEpsilon  = 1e5
	leastEpsilon = 1e-9
)

// guess returns about the ε that is looked for: that of a Gaussian loss with the observations' mean and variance.
func guess(seen []Observation, delta float64) float64 {
	tops := make([]float64, len(seen))
	for i, p := range seen {
		tops[i] = p.top(delta * 1e-4)
	}
	mean, sigma := newSum(seen, tops, func(i int) float64 { return tops[i] / 64 }).moments(0)
	return math.Max(leastEpsilon, mean+sigma*math.Sqrt(-2*math.Log(delta)))
}

// between returns the upper end of an interval of relative width 1e-5 around where f falls through 0, by the
// secant method, an end that stays being halved (Illinois), and by halves where that is slow.
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

// Spend is what one task costs in all its epochs: it is (Epsilon, Delta)-private.
type Spend struct {
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
}

// Adaptive returns what tasks cost together, each of which may have been chosen after the results of those
// before: they add up, rounded up ([RRUV16], Theorem 3.6, whose filter stops at fixed sums). Laws must not be composed
// then: [Delta] holds for laws that are fixed beforehand (docs/proofs/loss-laws.md, Theorem 3).
//
// [RRUV16]: https://arxiv.org/abs/1605.08294
func Adaptive(tasks ...Spend) (total Spend) {
	for _, task := range tasks {
		total.Epsilon = (total.Epsilon + task.Epsilon) * (1 + 1e-15)
		total.Delta = (total.Delta + task.Delta) * (1 + 1e-15)
	}
	return total
}
