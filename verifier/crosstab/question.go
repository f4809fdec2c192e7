package crosstab

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// maxRows is the largest number of groups of an answer.
const maxRows = 10_000

// Question asks for the number of clients in each group of a table, and for shares and a quantile within each group.
type Question struct {
	By       []string  `json:"by,omitempty"`       // Dimensions: one group for each combination of their values.
	Where    Where     `json:"where,omitempty"`    // Which cells count; empty: all.
	Share    Where     `json:"share,omitempty"`    // Which of a group's cells make the share; empty: no share.
	Quantile *Quantile `json:"quantile,omitempty"` // nil: no quantile.
	Versus   []string  `json:"versus,omitempty"`   // Values of By: the group of which each share is taken away.
	Compare  bool      `json:"compare,omitempty"`  // Whether the shares differ from that group's, as in an experiment.
}

// Quantile names a dimension with edges, and a probability in (0, 1).
type Quantile struct {
	Dimension string  `json:"dimension"`
	P         float64 `json:"p"`
}

// Answer is the answer to a question. Each interval holds with the confidence for itself. The bands of one column hold
// with that confidence together, over all rows.
type Answer struct {
	Question   Question `json:"question"`
	Confidence float64  `json:"confidence"`
	Rows       []Row    `json:"rows"`
}

// Row is the answer for one group. Share, Quantile and Difference are nil if they were not asked for, or if the data do
// not show that the group has clients.
type Row struct {
	Group      []string     `json:"group"` // Values of the dimensions by which the question groups.
	Clients    Banded       `json:"clients"`
	Shown      bool         `json:"shown"` // The group has clients enough to say something of its shares.
	Share      *Banded      `json:"share,omitempty"`
	Difference *Banded      `json:"difference,omitempty"` // Of the share, to the group that the question names.
	Comparison *Comparison  `json:"comparison,omitempty"` // Of the share with that group's; nil for few clients, too.
	Quantile   *NumberRange `json:"quantile,omitempty"`
}

// Banded is a figure with a band, which is wider than its interval.
type Banded struct {
	Figure
	Band [2]float64 `json:"band"`
}

// NumberRange is a quantile and its interval in the dimension's unit. An end is nil if the dimension is open there.
type NumberRange struct {
	Estimate *float64    `json:"estimate"`
	Interval [2]*float64 `json:"interval"`
	Band     [2]*float64 `json:"band"`
}

// query is a question about a table with a shape, with the groups' cells.
type query struct {
	*Table
	*Shape
	Question
	confidence float64
	each       float64 // Confidence with which each of the rows' intervals makes the bands hold.
	groups     []cellGroup
	share      []bool // By cell: whether it makes the share.
}

// cellGroup is the cells of a group, with the values by which it is grouped.
type cellGroup struct {
	values []string
	cells  []int
}

// Ask answers a question about a table. confidence is in (0, 1).
//
// The bands use Šidák's confidence c^(1/R) for R rows if the groups' errors are independent, for no two groups share a
// cell; else Bonferroni's 1 − (1−c)/R. All differences share a group, so they use the latter.
func Ask(t *Table, s *Shape, q Question, confidence float64) (*Answer, error) {
	if s.Cells() != len(t.counts) {
		return nil, invalid.Field("dimensions", strconv.Itoa(s.Cells())+" cells",
			strconv.Itoa(len(t.counts))+", the bins of the task")
	}
	a := &query{Table: t, Shape: s, Question: q, confidence: confidence}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	rows := float64(len(a.groups))
	if a.each = 1 - (1-confidence)/rows; t.sum([]int{0}) != nil {
		a.each = math.Pow(confidence, 1/rows)
	}
	out := &Answer{Question: q, Confidence: confidence}
	for _, g := range a.groups {
		out.Rows = append(out.Rows, a.row(g))
	}
	return out, a.differences(out.Rows)
}

// prepare finds the groups' cells and those of the share.
func (a *query) prepare() error {
	in, err := a.Select("where", a.Where)
	if err != nil {
		return err
	}
	if len(a.Share) > 0 {
		cells, err := a.Select("share", a.Share)
		if err != nil {
			return err
		}
		a.share = make([]bool, len(a.counts))
		for _, j := range cells {
			a.share[j] = true
		}
	}
	if err := a.checkQuantile(); err != nil {
		return err
	}
	var by []int
	for _, name := range a.By {
		i, err := a.find("by", name)
		if err != nil {
			return err
		}
		if slices.Contains(by, i) {
			return invalid.Field("by", invalid.Quote(name), "each dimension once")
		}
		by = append(by, i)
	}
	return a.split(in, by)
}

// split groups cells by dimensions, in the order of their values.
func (a *query) split(cells, by []int) error {
	rows := 1
	for _, i := range by {
		rows *= a.Dimensions[i].Size()
	}
	if rows > maxRows {
		return invalid.Field("by", strconv.Itoa(rows)+" groups", "at most "+strconv.Itoa(maxRows))
	}
	a.groups = make([]cellGroup, rows)
	for _, j := range cells {
		at := 0
		for _, i := range by {
			at = at*a.Dimensions[i].Size() + a.index(j, i)
		}
		a.groups[at].cells = append(a.groups[at].cells, j)
	}
	for at := range a.groups {
		values := make([]string, len(by))
		for rest, k := at, len(by)-1; k >= 0; k-- {
			d := a.Dimensions[by[k]]
			values[k], rest = d.Label(rest%d.Size()), rest/d.Size()
		}
		a.groups[at].values = values
	}
	a.groups = slices.DeleteFunc(a.groups, func(g cellGroup) bool { return len(g.cells) == 0 })
	return nil
}

// index returns a cell's index in a dimension.
func (s *Shape) index(cell, dimension int) int {
	for i := len(s.Dimensions) - 1; i > dimension; i-- {
		cell /= s.Dimensions[i].Size()
	}
	return cell % s.Dimensions[dimension].Size()
}

func (a *query) checkQuantile() error {
	if a.Quantile == nil {
		return nil
	}
	i, err := a.find("quantile", a.Quantile.Dimension)
	switch p := a.Quantile.P; {
	case err != nil:
		return err
	case a.Dimensions[i].Edges == nil:
		return invalid.Field("quantile", invalid.Quote(a.Quantile.Dimension), "a dimension with edges")
	case !(p > 0 && p < 1):
		return invalid.Field("quantile", strconv.FormatFloat(p, 'g', -1, 64), "a probability between 0 and 1")
	}
	return nil
}

// row answers for one group.
func (a *query) row(g cellGroup) Row {
	row := Row{Group: g.values}
	row.Clients = banded(func(confidence float64) Figure { return a.Count(g.cells, confidence) }, a.confidence, a.each)
	one, ok := a.Group(g.cells, a.confidence)
	if row.Shown = ok; !ok {
		return row
	}
	all, _ := a.Group(g.cells, a.each)
	if a.share != nil {
		part := a.partOf(g)
		row.Share = &Banded{one.Share(part), all.Share(part).Interval}
	}
	if a.Quantile != nil {
		row.Quantile = a.quantile(g, one, all)
	}
	return row
}

func banded(figure func(confidence float64) Figure, one, all float64) Banded {
	return Banded{figure(one), figure(all).Interval}
}

// quantile converts the quantile's positions to the dimension's unit.
func (a *query) quantile(g cellGroup, one, all *Group) *NumberRange {
	i, _ := a.find("quantile", a.Quantile.Dimension)
	d := a.Dimensions[i]
	bins := make([][]int, d.Size())
	for _, j := range g.cells {
		bins[a.index(j, i)] = append(bins[a.index(j, i)], j)
	}
	number := func(position float64) *float64 {
		at := min(int(position), d.Size()-1)
		lo, hi := d.Edges[at], d.Edges[at+1]
		x := lo
		if part := position - float64(at); part > 0 {
			x = lo + part*(hi-lo)
		}
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return nil
		}
		return &x
	}
	ends := func(f Figure) [2]*float64 { return [2]*float64{number(f.Interval[0]), number(f.Interval[1])} }
	f := one.Quantile(bins, a.Quantile.P)
	return &NumberRange{number(f.Estimate), ends(f), ends(all.Quantile(bins, a.Quantile.P))}
}

// differences adds the differences of shares from the group that the question names.
func (a *query) differences(rows []Row) error {
	if len(a.Versus) == 0 {
		if a.Question.Compare {
			return invalid.Field("compare", "true", "a question with versus")
		}
		return nil
	}
	if a.share == nil {
		return invalid.Field("versus", invalid.Quote(strings.Join(a.Versus, ",")), "a question with a share")
	}
	at := slices.IndexFunc(rows, func(r Row) bool { return slices.Equal(r.Group, a.Versus) })
	if at < 0 {
		return invalid.Field("versus", invalid.Quote(strings.Join(a.Versus, ",")), "one value for each dimension of by")
	}
	each := 1 - (1-a.confidence)/float64(max(1, len(rows)-1))
	part := func(i int) Part { return Part{a.groups[i].cells, a.partOf(a.groups[i])} }
	for i := range rows {
		d, ok := a.Difference(part(i), part(at), a.confidence)
		if i == at || !ok {
			continue
		}
		band, _ := a.Difference(part(i), part(at), each)
		rows[i].Difference = &Banded{d, band.Interval}
		if a.Question.Compare {
			rows[i].Comparison, _ = a.Table.Compare(part(i), part(at), a.confidence)
		}
	}
	return nil
}

// partOf returns the cells of a group that make the share.
func (a *query) partOf(g cellGroup) []int {
	return slices.DeleteFunc(slices.Clone(g.cells), func(j int) bool { return !a.share[j] })
}
