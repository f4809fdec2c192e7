package verifier

import (
	"fmt"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Joint is a histogram over pairs of a group and a value, such as a device and a page load time. With V values per
// group, label g·V+v of the task means group g and value v. Joint estimates how each group's values are distributed,
// and how the distributions differ.
//
// Every figure is made of weighted sums Σ w_j·ĉ_j of the estimated counts ĉ_j. [protocols.Bins.Weighted] gives the
// error law of such a sum. The counts of one histogram may depend on each other: in randomized response a report names
// one cell, and dummies may have a fixed total. Dummies that are drawn cell by cell are independent. The law has the
// right covariances in each case, so nothing here assumes independence.
//
// It is for complete batches.
type Joint struct {
	bins   protocols.Bins
	counts []float64
	values int // number of values per group, V
}

// Figure is an estimate computed from counts, with an interval of the requested confidence.
type Figure struct {
	Estimate float64    `json:"estimate"`
	Interval [2]float64 `json:"interval"`
}

// NewJoint returns the joint histogram of a task over labels, with a number of groups. It returns an error if the query
// is not a histogram over labels, or if groups does not divide the number of labels.
func NewJoint(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, groups int) (*Joint, error) {
	switch {
	case t.Query.Info().Shape != task.PerBin || !t.Input.Labels:
		return nil, invalid.Field("query", string(t.Query), "a histogram over labels, for pairs")
	case groups < 1 || t.Input.Bins%uint64(groups) != 0:
		return nil, invalid.Field("groups", fmt.Sprint(groups), "a divisor of the "+fmt.Sprint(t.Input.Bins)+" labels")
	}
	return &Joint{binsOf(m, agg), agg.Total(), int(t.Input.Bins) / groups}, nil
}

// weights returns weights for a sum of counts: all for a group's values, plus more for those in [first, last), and 0
// for other groups.
func (j *Joint) weights(group int, all, more float64, first, last int) []float64 {
	out := make([]float64, len(j.counts))
	for v := range j.values {
		out[group*j.values+v] = all
		if v >= first && v < last {
			out[group*j.values+v] += more
		}
	}
	return out
}

// sum returns the weighted sum Σ w_j·ĉ_j.
func (j *Joint) sum(weights []float64) (sum float64) {
	for i, w := range weights {
		sum += w * j.counts[i]
	}
	return sum
}

// interval returns the interval of the weighted sum Σ w_j·ĉ_j. A normal law gets a continuity correction, because
// counts are whole numbers: the change of the sum if a message moves to another cell. It matters with little noise or
// few messages.
func (j *Joint) interval(weights []float64, confidence float64) (lo, hi float64) {
	law := j.bins.Weighted(weights)
	if normal, ok := law.(protocols.Normal); ok {
		normal.Step = slices.Max(weights) - slices.Min(weights)
		law = normal
	}
	return law.Interval(confidence)
}

// Sum returns the number of a group's clients with a value in [first, last).
func (j *Joint) Sum(group, first, last int, confidence float64) Figure {
	weights := j.weights(group, 0, 1, first, last)
	lo, hi := j.interval(weights, confidence)
	return Figure{j.sum(weights), [2]float64{lo, hi}}
}

// Size returns the number of clients in a group.
func (j *Joint) Size(group int, confidence float64) Figure {
	return j.Sum(group, 0, j.values, confidence)
}

// Share returns the share s of a group's clients with a value in [first, last). If A of the group's N clients have such
// a value, Â − s·N̂ has mean 0 for all A and N. So the interval is Fieller's: all s for which the interval of this sum
// contains 0,
//
//	{s ∈ [0, 1] : 0 ∈ interval of Â − s·N̂}                                                           (1)
//
// It covers the true share exactly as often as the law's interval covers the true sum. ok is false if the data do not
// show that the group has any clients, because then nothing bounds the share.
func (j *Joint) Share(group, first, last int, confidence float64) (share Figure, ok bool) {
	size := j.Size(group, confidence)
	if size.Interval[0] <= 0 {
		return share, false
	}
	ends := func(s float64) (lo, hi float64) {
		return j.interval(j.weights(group, -s, 1, first, last), confidence)
	}
	share.Estimate = j.Sum(group, first, last, confidence).Estimate / size.Estimate
	middle := min(max(share.Estimate, 0), 1)
	share.Interval = [2]float64{
		boundary(0, middle, func(s float64) bool { lo, _ := ends(s); return lo > 0 }),
		boundary(1, middle, func(s float64) bool { _, hi := ends(s); return hi < 0 }),
	}
	return share, true
}

// boundary finds by bisection where outside stops to hold between end and middle. It returns end if outside does not
// hold at end.
func boundary(end, middle float64, outside func(s float64) bool) float64 {
	if !outside(end) {
		return end
	}
	for range 50 {
		if s := (end + middle) / 2; outside(s) {
			end = s
		} else {
			middle = s
		}
	}
	return end
}

// maxSizeError is the largest half-width of the interval of a group's size, divided by the estimate, with which
// [Joint.Difference] has a result.
const maxSizeError = .2

// Difference returns a group's share of the values in [first, last) minus another group's share. For a group with
// estimated size N̂ and estimated share ŝ = Â/N̂, the error of the share is exactly
//
//	ŝ − s = ((Â − A) − s·(N̂ − N))/N̂                                                                (2)
//
// So the error of the difference is one weighted sum of the errors of all counts of both groups. The law of this sum
// includes their covariances. The only approximation is that the weights use N̂ and ŝ instead of N and s. It changes
// the interval's width by about the relative error of N̂. ok is false if that is more than a fifth.
func (j *Joint) Difference(group, other, first, last int, confidence float64) (difference Figure, ok bool) {
	weights := make([]float64, len(j.counts))
	for i, g := range [2]int{group, other} {
		size := j.Size(g, confidence)
		if size.Estimate-size.Interval[0] > maxSizeError*size.Estimate {
			return difference, false
		}
		share := j.Sum(g, first, last, confidence).Estimate / size.Estimate
		sign := 1 - 2*float64(i)
		difference.Estimate += sign * share
		for v, w := range j.weights(g, -share, 1, first, last) {
			weights[v] += sign * w / size.Estimate // formula (2)
		}
	}
	lo, hi := j.interval(weights, confidence) // interval of the error, whose estimate is 0
	difference.Interval = [2]float64{max(difference.Estimate+lo, -1), min(difference.Estimate+hi, 1)}
	return difference, true
}

// Quantile returns a group's p-quantile, for 0 < p < 1, as a position among its values: 0 is the lower edge of the
// first value, and V the upper edge of the last. The interval ends at edges of values. Like formula (4) of
// [distribution], it inverts tests at fixed edges. The test at edge e is about the sum of the counts below e minus p
// times the group's size. This sum has the sign of F_e − p, where F_e is the group's share below e.
//
// ok is false if the data do not show that the group has any clients.
func (j *Joint) Quantile(group int, p, confidence float64) (quantile Figure, ok bool) {
	size := j.Size(group, confidence)
	if size.Interval[0] <= 0 {
		return quantile, false
	}
	sum := func(edge int) []float64 { return j.weights(group, -p, 1, 0, edge) }
	first, last := 1, j.values-1
	for ; first < j.values; first++ {
		if _, hi := j.interval(sum(first), confidence); hi >= 0 {
			break
		}
	}
	for ; last > 0; last-- {
		if lo, _ := j.interval(sum(last), confidence); lo <= 0 {
			break
		}
	}
	quantile.Interval = [2]float64{float64(first - 1), float64(last + 1)}
	before := 0.0 // running maximum of F
	for e := 1; e <= j.values; e++ {
		here := max(before, j.Sum(group, 0, e, confidence).Estimate/size.Estimate)
		if here >= p {
			quantile.Estimate = float64(e-1) + (p-before)/(here-before)
			return quantile, true
		}
		before = here
	}
	quantile.Estimate = float64(j.values)
	return quantile, true
}
