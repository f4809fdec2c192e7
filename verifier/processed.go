package verifier

import (
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// The ways of post-processing.
const (
	MethodClip    = "clip"    // Each entry to what the values can come to.
	MethodSimplex = "simplex" // The nearest counts of at least 0 that add up to the clients.
)

// Processed is an answer moved to the nearest possible one. That costs no privacy and brings it nearer to the
// truth, but it is biased, unlike the estimate: averages over epochs are those of estimates.
type Processed struct {
	Method   string    `json:"method"` // "clip" or "simplex".
	Estimate Values    `json:"estimate"`
	Interval Intervals `json:"interval"` // Each entry's own.
	Band     Intervals `json:"band"`     // Of all entries at once.
}

// process fills the answer's post-processed form, for a number of clients. The truth is possible, and so in the
// part of an interval that is possible wherever it is in the interval. What is nearest to all counts together may
// be outside of one's interval, which then reaches to it: so an interval holds the truth at least as often as
// that of the estimate, and is longer only to hold what it is about.
func (a *Answer) process(t *task.Task, clients uint64) {
	least, most := protocols.Contribution(t)
	scale := protocols.Scale(t.Query, clients) * float64(clients)
	lo, hi := least*scale, most*scale
	p := &Processed{Method: MethodClip, Estimate: slices.Clone(a.Estimate)}
	for j, x := range p.Estimate {
		p.Estimate[j] = min(max(x, lo), hi)
	}
	if t.Query.Info().Shape == task.PerBin {
		p.Method, p.Estimate = MethodSimplex, simplex(a.Estimate, hi)
	}
	p.Interval, p.Band = possible(a.Interval, p.Estimate, lo, hi), possible(a.Band, p.Estimate, lo, hi)
	a.Processed = p
}

// possible returns the parts from lo to hi of intervals, and of each up to its estimate.
func possible(of Intervals, estimate Values, lo, hi float64) (out Intervals) {
	for j, i := range of {
		x := estimate[j]
		out = append(out, [2]float64{min(max(i[0], lo), hi, x), max(min(max(i[1], lo), hi), x)})
	}
	return out
}

// simplex returns the point nearest to x, in Euclidean distance, whose entries are at least 0 and add up to a
// total: x_j - θ or 0, with the θ for which they do [HWC74].
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
