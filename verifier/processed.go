package verifier

import (
	"slices"

	"github.com/doona-dp/doona/wire/task"
)

// The methods of post-processing.
const (
	methodClip    = "clip"    // Clips each entry to the range of possible answers.
	MethodSimplex = "simplex" // Projects onto counts of at least 0 whose sum is the number of clients.
)

// Processed is the possible answer that is nearest to the estimate. Post-processing costs no privacy and reduces the
// error, but it adds bias. To average over epochs, use the estimates: they are unbiased.
type Processed struct {
	Method   string    `json:"method"` // "clip" or "simplex".
	Estimate Values    `json:"estimate"`
	Interval Intervals `json:"interval"` // Holds for each entry by itself.
	Band     Intervals `json:"band"`     // Holds for all entries at once.
}

// process sets the post-processed answer for a number of clients. The true answer is possible. So if an interval
// contains it, the possible part of the interval does, too. The projected point may lie outside an entry's interval;
// then process extends the interval to it. So each interval covers the truth at least as often as the estimate's.
func (a *Answer) process(t *task.Task, clients uint64) {
	lo, hi := possibleAnswers(t, clients)
	p := &Processed{Method: methodClip, Estimate: slices.Clone(a.Estimate)}
	for j, x := range p.Estimate {
		p.Estimate[j] = min(max(x, lo), hi)
	}
	if t.Query.Info().Shape == task.PerBin {
		p.Method, p.Estimate = MethodSimplex, simplex(a.Estimate, hi)
	}
	p.Interval, p.Band = possible(a.Interval, p.Estimate, lo, hi), possible(a.Band, p.Estimate, lo, hi)
	a.Processed = p
}

// possible clips intervals to [lo, hi], and extends each one to include its estimate. It keeps those that are none.
func possible(of Intervals, estimate Values, lo, hi float64) (out Intervals) {
	for j, i := range of {
		x := estimate[j]
		if !i.IsNone() {
			i = interval{min(max(i[0], lo), hi, x), max(min(max(i[1], lo), hi), x)}
		}
		out = append(out, i)
	}
	return out
}

// simplex returns the point nearest to x, in Euclidean distance, whose entries are at least 0 and add up to total. Its
// entries are max(x_j - θ, 0). It chooses θ so that they add up to total [HWC74].
//
// [HWC74]: M. Held, P. Wolfe and H. Crowder, Validation of subgradient optimization, Mathematical Programming 6, 1974
func simplex(x []float64, total float64) []float64 {
	descending := slices.Sorted(slices.Values(x))
	slices.Reverse(descending)
	sum, theta := 0.0, 0.0
	for j, y := range descending {
		sum += y
		if next := (sum - total) / float64(j+1); y > next {
			theta = next
		}
	}
	out := make([]float64, len(x))
	for j, y := range x {
		out[j] = max(y-theta, 0)
	}
	return out
}
