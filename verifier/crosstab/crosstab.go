// Package crosstab answers questions about a table: a histogram whose cells are combinations of the values of several
// dimensions, such as a device, a page and a loading time. All of it is computed from one noisy table, so it has no
// privacy cost.
//
// Every figure is made of sums Σ ĉ_j of the estimated counts of some cells. Where relays draw the dummies of each cell
// by itself, the law of such a sum's error is exact ([protocols.Capabilities.Sum]). Else [protocols.Bins.Weighted]
// gives a nearly normal one with the right covariances: in randomized response a report names one cell, and dummies may
// have a fixed total.
//
// It is for complete batches.
package crosstab

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Table is the estimated counts of a table's cells, with the laws of their errors.
type Table struct {
	bins   protocols.Bins
	sum    func(cells []int) *exactLaw // law of the error of a sum of cells, or nil
	counts []float64
}

// Figure is an estimate computed from counts, with an interval.
type Figure struct {
	Estimate float64    `json:"estimate"`
	Interval [2]float64 `json:"interval"`
}

// New returns the table of an aggregate. It returns an error unless the task is a histogram over labels, by a protocol
// with [protocols.Capabilities.Bins].
func New(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate) (*Table, error) {
	if t.Query.Info().Shape != task.PerBin || !t.Input.Labels {
		return nil, invalid.Field("query", string(t.Query), "a histogram over labels, for a table")
	}
	can := protocols.CapabilitiesOf(m)
	if can.Bins == nil {
		return nil, invalid.Field("protocol", t.Protocol, "one that knows the errors of sums of cells, such as augmented")
	}
	sum := func(cells []int) *exactLaw {
		if can.Sum == nil {
			return nil
		}
		first, masses := can.Sum(agg, cells)
		return newExactLaw(first, masses)
	}
	return &Table{can.Bins(agg), sum, agg.Total()}, nil
}

// estimate returns the sum of cells' estimated counts.
func (t *Table) estimate(cells []int) (sum float64) {
	for _, j := range cells {
		sum += t.counts[j]
	}
	return sum
}

// weights returns the weights of a sum of counts: all for the cells of a group, and more in addition for a part's.
func (t *Table) weights(group []int, all float64, part []int, more float64) []float64 {
	out := make([]float64, len(t.counts))
	for _, j := range group {
		out[j] = all
	}
	for _, j := range part {
		out[j] += more
	}
	return out
}

// interval returns the interval of the weighted sum Σ w_j·ĉ_j. A normal law gets a continuity correction, because
// counts are whole numbers: the change of the sum if a message moves to another cell. It matters with little noise or
// few messages.
func (t *Table) interval(weights []float64, confidence float64) (lo, hi float64) {
	law := t.bins.Weighted(weights)
	if normal, ok := law.(protocols.Normal); ok {
		normal.Step = slices.Max(weights) - slices.Min(weights)
		law = normal
	}
	return law.Interval(confidence)
}

// Count returns the number of clients in some cells, with an interval of this confidence.
func (t *Table) Count(cells []int, confidence float64) Figure {
	if len(cells) == 0 {
		return Figure{}
	}
	estimate := t.estimate(cells)
	if law := t.sum(cells); law != nil {
		lo, hi := law.interval(confidence)
		return Figure{estimate, [2]float64{estimate - hi, estimate - lo}}
	}
	lo, hi := t.interval(t.weights(cells, 1, nil, 0), confidence)
	return Figure{estimate, [2]float64{lo, hi}}
}

// Share returns the share s of a group's clients who are in a part of its cells. If A of the group's N clients are, Â −
// s·N̂ has mean 0 for all A and N. So the interval is Fieller's: all s that a test of this sum does not reject.
func (g *Group) Share(cells []int) Figure {
	p := g.part(cells)
	f := Figure{Estimate: p.estimate / g.size}
	middle := min(max(f.Estimate, 0), 1)
	f.Interval = [2]float64{boundary(0, middle, p.tooLow), boundary(1, middle, p.tooHigh)}
	return f
}

// boundary finds by bisection where outside stops to hold between end and middle. It returns end if outside does not
// hold at end.
func boundary(end, middle float64, outside func(s float64) bool) float64 {
	if !outside(end) {
		return end
	}
	for range 30 {
		if s := (end + middle) / 2; outside(s) {
			end = s
		} else {
			middle = s
		}
	}
	return end
}

// Part is some cells of a group of cells.
type Part struct{ Group, Cells []int }

// differenceMiss is the part of the misses of a difference with which each share's interval is made. Simulation showed
// that it is enough for few clients too, where laws have few values.
const differenceMiss = .8

// Difference returns the share of one part minus the share of another, whose groups have no cell in common. The
// distance from the estimate to an end of its interval is the root of the sum of squares of both shares' distances
// (MOVER, [ZD08]). It is their sum if one of these ends is 0 or 1: that share cannot miss, but it may lie just there.
// ok is false unless both groups are shown ([Table.Group]).
//
// [ZD08]: https://doi.org/10.1002/sim.3095
func (t *Table) Difference(one, two Part, confidence float64) (difference Figure, ok bool) {
	var shares [2]Figure
	for i, p := range []Part{one, two} {
		g, ok := t.Group(p.Group, 1-differenceMiss*(1-confidence))
		if !ok {
			return difference, false
		}
		f := g.Share(p.Cells)
		f.Estimate = min(max(f.Estimate, f.Interval[0]), f.Interval[1]) // That of few clients may be outside.
		shares[i] = f
	}
	reach := func(lower, upper Figure) float64 {
		down, up := lower.Estimate-lower.Interval[0], upper.Interval[1]-upper.Estimate
		if lower.Interval[0] == 0 || upper.Interval[1] == 1 {
			return down + up
		}
		return math.Hypot(down, up)
	}
	d := shares[0].Estimate - shares[1].Estimate
	return Figure{d, [2]float64{d - reach(shares[0], shares[1]), d + reach(shares[1], shares[0])}}, true
}

// Quantile returns a group's p-quantile, for 0 < p < 1, of a dimension of numbers. bins are the group's cells by
// intervals of the dimension. The result is a position among these: 0 is the lower edge of the first, and len(bins) the
// upper edge of the last. The interval ends at edges. It inverts tests at fixed edges. The test at edge e is about the
// sum of the counts below e minus p times the group's size. This sum has the sign of F_e − p, where F_e is the group's
// share below e.
func (g *Group) Quantile(bins [][]int, p float64) Figure {
	below := func(e int) []int { return slices.Concat(bins[:e]...) }
	first, last := 1, len(bins)-1
	for first < len(bins) && g.part(below(first)).tooHigh(p) {
		first++
	}
	for last > 0 && g.part(below(last)).tooLow(p) {
		last--
	}
	f := Figure{Interval: [2]float64{float64(first - 1), float64(last + 1)}}
	before := 0.0 // running maximum of F
	for e := 1; e <= len(bins); e++ {
		here := max(before, g.table.estimate(below(e))/g.size)
		if here >= p {
			f.Estimate = float64(e-1) + (p-before)/(here-before)
			return f
		}
		before = here
	}
	f.Estimate = float64(len(bins))
	return f
}
