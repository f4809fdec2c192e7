package verifier

import (
	"fmt"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Joint is a histogram over pairs, such as a device and how long it took to load a page. Label g·V+v of the task is
// group g with value v of V. It says how each group's values are distributed, and how the distributions differ.
//
// Every figure is made of weighted sums Σ w_j·ĉ_j of the estimated counts, whose law is [protocols.Bins.Weighted]:
// the cells of one histogram may depend on each other. By randomized response one report names one cell, so that they
// do; by dummies of a fixed total they do; by dummies that are drawn cell by cell they do not. The law has the right
// covariances in each case, and nothing here assumes independence.
//
// It is of batches of which nothing is missing.
type Joint struct {
	bins   protocols.Bins
	counts []float64
	values int // V.
}

// Figure is a number that is made of counts, with an interval of the confidence asked for.
type Figure struct {
	Estimate float64    `json:"estimate"`
	Interval [2]float64 `json:"interval"`
}

// NewJoint returns the joint histogram of a task over labels whose pairs have so many groups.
func NewJoint(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, groups int) (*Joint, error) {
	switch {
	case t.Query.Info().Shape != task.PerBin || !t.Input.Labels:
		return nil, invalid.Field("query", string(t.Query), "a histogram over labels, for pairs")
	case groups < 1 || t.Input.Bins%uint64(groups) != 0:
		return nil, invalid.Field("groups", fmt.Sprint(groups), "a divisor of the "+fmt.Sprint(t.Input.Bins)+" labels")
	}
	return &Joint{binsOf(m, agg), agg.Total(), int(t.Input.Bins) / groups}, nil
}

// weights are zero but for a group's values: one there, and more of those from first up to last.
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

// sum returns Σ w_j·ĉ_j.
func (j *Joint) sum(weights []float64) (sum float64) {
	for i, w := range weights {
		sum += w * j.counts[i]
	}
	return sum
}

// interval returns that of Σ w_j·ĉ_j. A normal law gets the continuity correction of a count that is whole: the sum
// moves by as much as when a message moves from one cell to another. Where there is little noise, or few messages, it
// matters.
func (j *Joint) interval(weights []float64, confidence float64) (lo, hi float64) {
	law := j.bins.Weighted(weights)
	if normal, ok := law.(protocols.Normal); ok {
		normal.Step = slices.Max(weights) - slices.Min(weights)
		law = normal
	}
	return law.Interval(confidence)
}

// Sum returns the number of clients of a group whose value is one of those from first up to last, which is left out. It
// is whole: see [Joint.interval].
func (j *Joint) Sum(group, first, last int, confidence float64) Figure {
	weights := j.weights(group, 0, 1, first, last)
	lo, hi := j.interval(weights, confidence)
	return Figure{j.sum(weights), [2]float64{lo, hi}}
}

// Size returns the number of a group's clients.
func (j *Joint) Size(group int, confidence float64) Figure {
	return j.Sum(group, 0, j.values, confidence)
}

// Share returns the share s of a group's clients whose value is one of those from first up to last, which is left out.
// With A of N clients the sum Â − s·N̂ has the mean 0, whatever A and N are. So the interval is that of Fieller: all s
// under which this sum's law holds 0,
//
//	{s ∈ [0, 1] : 0 ∈ interval of Â − s·N̂}                                                           (1)
//
// It holds the true share exactly as often as the law's interval holds the true sum. ok is false where the data do not
// show that the group has clients at all: then nothing bounds the share.
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

// boundary returns where, on the way from an end to the middle, what is outside ends; the end, if it is not outside.
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

// maxSizeError is how much of a group's estimated size its interval may reach to either side for [Joint.Difference].
const maxSizeError = .2

// Difference returns a group's share of the values from first up to last, which is left out, less that of another. With
// ŝ = Â/N̂ the error of a share is exactly
//
//	ŝ − s = ((Â − A) − s·(N̂ − N))/N̂                                                                (2)
//
// so that the error of the difference is one weighted sum of all errors of counts, of both groups together: its law
// has their covariances. What is not exact is that N̂ and, in the weights, ŝ stand for N and s, which changes the width
// of the interval by the order of the error of N̂ over N. ok is false where that is more than a fifth.
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
			weights[v] += sign * w / size.Estimate // (2)
		}
	}
	lo, hi := j.interval(weights, confidence) // Of the error: its estimate is 0.
	difference.Interval = [2]float64{max(difference.Estimate+lo, -1), min(difference.Estimate+hi, 1)}
	return difference, true
}

// Quantile returns where among its values a group's p-quantile lies, 0 being the lower edge of the first value and
// V the upper edge of the last, for 0 < p < 1. The interval is in whole values. As in (4) of distribution it
// inverts tests at fixed edges, here of the sums D_e of the counts below e less p times the group's size: these
// have the sign of F_e − p.
//
// ok is false where the data do not show that the group has clients at all.
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
	before := 0.0 // The running maximum of F, which crosses p.
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
