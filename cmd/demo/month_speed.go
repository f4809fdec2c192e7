package main

import (
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/crosstab"
)

// monthSpeed says how fast pages showed: fractions and quantiles for each device, and differences between devices. All
// of it is computed from one histogram, whose cells combine device and bin.
type monthSpeed struct {
	Bins    []string      `json:"bins"`
	Edges   []float64     `json:"edges_seconds"` // Lower edges of the bins.
	Devices []monthDevice `json:"devices"`
	Pairs   []monthPair   `json:"differences"`
}

// figure is an estimate with its interval, and the true number. It is null if there is no estimate.
type figure struct {
	crosstab.Figure
	Truth float64 `json:"truth"`
}

type monthDevice struct {
	Name    string    `json:"name"`
	Reports figure    `json:"reports"`
	Good    *figure   `json:"good"` // Fraction of paints up to 2.5 s.
	Poor    *figure   `json:"poor"` // Fraction of paints above 4 s.
	P75     *figure   `json:"p75_seconds"`
	Shares  []*figure `json:"shares"` // Fraction of each bin among the device's reports.
}

// monthPair compares two devices: fractions of the first minus those of the second.
type monthPair struct {
	First  string  `json:"first"`
	Second string  `json:"second"`
	Good   *figure `json:"good"`
	Poor   *figure `json:"poor"`
	// Shares holds the difference in each bin. Their intervals are wider, so that all hold at once.
	Shares []*figure `json:"shares"`
}

// group holds the cells of one device, with the true numbers.
type group struct {
	table *crosstab.Table
	first int       // Its first cell.
	truth []float64 // True numbers of its bins.
}

func (g group) count(first, last int) (sum float64) {
	for _, x := range g.truth[first:last] {
		sum += x
	}
	return sum
}

func (g group) fraction(first, last int) float64 {
	return g.count(first, last) / g.count(0, len(g.truth))
}

// cells returns the cells of the bins first to last.
func (g group) cells(first, last int) (cells []int) {
	for v := first; v < last; v++ {
		cells = append(cells, g.first+v)
	}
	return cells
}

func (g group) all() []int { return g.cells(0, len(g.truth)) }

// share returns the fraction of the group's reports that are in the bins first to last.
func (g group) share(first, last int, confidence float64) *figure {
	shown, ok := g.table.Group(g.all(), confidence)
	if !ok {
		return nil
	}
	return &figure{shown.Share(g.cells(first, last)), g.fraction(first, last)}
}

// less returns the group's fraction in the bins first to last, minus the other group's fraction.
func (g group) less(other group, first, last int, confidence float64) *figure {
	f, ok := g.table.Difference(crosstab.Part{Group: g.all(), Cells: g.cells(first, last)},
		crosstab.Part{Group: other.all(), Cells: other.cells(first, last)}, confidence)
	if !ok {
		return nil
	}
	return &figure{f, g.fraction(first, last) - other.fraction(first, last)}
}

// p75 returns the 75 % quantile in seconds. The last bin has no upper edge; p75 assumes that it is as wide as the bin
// before.
func (g group) p75() *figure {
	shown, ok := g.table.Group(g.all(), verifier.Confidence)
	if !ok {
		return nil
	}
	var bins [][]int
	for v := range g.truth {
		bins = append(bins, g.cells(v, v+1))
	}
	out := &figure{Figure: shown.Quantile(bins, .75)}
	out.Estimate = seconds(out.Estimate)
	for i, edge := range out.Interval {
		out.Interval[i] = seconds(edge)
	}
	below, all := 0.0, .75*g.count(0, len(g.truth))
	for v, x := range g.truth {
		if below+x >= all {
			out.Truth = seconds(float64(v) + (all-below)/x)
			break
		}
		below += x
	}
	return out
}

// seconds converts a position among the bins, such as 2.5, to a time in seconds.
func seconds(position float64) float64 {
	last := len(paintEdges) - 1
	edge := func(i int) float64 {
		if i > last {
			return 2*paintEdges[last] - paintEdges[last-1]
		}
		return paintEdges[i]
	}
	at := min(int(position), last)
	return edge(at) + (position-float64(at))*(edge(at+1)-edge(at))
}

// speed returns the results of a question whose cells combine device and bin.
func (d *diary) speed(question int, held *heldCount) (*monthSpeed, error) {
	sum, _, err := d.total(question)
	if err != nil {
		return nil, err
	}
	q := d.questions[question]
	table, err := crosstab.New(q.task, q.mechanism, sum.aggregate)
	if err != nil {
		return nil, err
	}
	bins := len(paintEdges)
	good, poor := paintBin(goodPaint), paintBin(poorPaint)
	s := &monthSpeed{Bins: paintNames(), Edges: paintEdges}
	count := func(f *figure) *figure {
		if f != nil {
			held.add(f.Interval, f.Truth)
		}
		return f
	}
	var groups []group
	for at, device := range devices {
		g := group{table, at * bins, sum.truth[at*bins : (at+1)*bins]}
		groups = append(groups, g)
		of := monthDevice{Name: device.name,
			Reports: figure{table.Count(g.all(), verifier.Confidence), g.count(0, bins)},
			Good:    count(g.share(0, good, verifier.Confidence)),
			Poor:    count(g.share(poor, bins, verifier.Confidence)), P75: count(g.p75())}
		held.add(of.Reports.Interval, of.Reports.Truth)
		for v := range bins {
			of.Shares = append(of.Shares, count(g.share(v, v+1, verifier.Confidence)))
		}
		s.Devices = append(s.Devices, of)
	}
	atOnce := 1 - (1-verifier.Confidence)/float64(bins) // all bins at once, by Bonferroni's bound
	for i, first := range groups {
		for k, second := range groups[i+1:] {
			p := monthPair{First: devices[i].name, Second: devices[i+1+k].name,
				Good: count(first.less(second, 0, good, verifier.Confidence)),
				Poor: count(first.less(second, poor, bins, verifier.Confidence))}
			for v := range bins {
				p.Shares = append(p.Shares, first.less(second, v, v+1, atOnce))
			}
			s.Pairs = append(s.Pairs, p)
		}
	}
	return s, nil
}
