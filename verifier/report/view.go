package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// view has the data of the HTML page: a pageModel and charts.
type view struct {
	*pageModel
	Home   string       // URL of the list of tasks; empty if there is none.
	Styles template.CSS // Style sheet in the page; only for a page in one file.
	Chart  template.HTML
	Over   template.HTML // Chart of a histogram's median by epoch.
	Apart  []series      // For other answers, a chart by epoch for each of the largest entries.
	Spent  template.HTML // Chart of the cumulative ε by epoch.
}

type series struct {
	Name  string
	Chart template.HTML
}

// maxSeries is the maximum number of entries with a chart by epoch.
const maxSeries = 6

// Widths of charts in pixels.
const (
	chartWidth = 1040
	halfWidth  = 500
)

func newView(r *verifier.Report, home string) *view {
	v := &view{pageModel: newPageModel(r), Home: home}
	v.Spent = v.spent().SVG()
	if v.Entry == "" {
		v.Chart = v.byEpoch(v.Measure, chartWidth, func(e *epochRow) *estimate { return e.one }).SVG()
		return v
	}
	v.Chart = v.bars().SVG()
	if len(v.rows) < 2 {
		return v
	}
	if v.Distribution != nil {
		v.Over = v.byEpoch("Median", halfWidth, func(e *epochRow) *estimate { return e.one }).SVG()
		return v
	}
	for _, j := range v.largest() {
		v.Apart = append(v.Apart, series{v.Labels[j], v.byEpoch(v.Labels[j], halfWidth, func(e *epochRow) *estimate {
			if e.Estimate == nil {
				return nil
			}
			return entryOf(&e.Answer, j)
		}).SVG()})
	}
	return v
}

// byEpoch returns the chart of a number by epoch. It omits epochs for which of returns nil.
func (v *view) byEpoch(name string, width int, of func(e *epochRow) *estimate) display.Chart {
	chart := display.Chart{Width: width, Axis: "epoch",
		Name: name + " by epoch, with intervals; the numbers are in the table of epochs or in the JSON"}
	for i := range v.rows {
		row := &v.rows[i]
		if e := of(row); e != nil {
			chart.Points = append(chart.Points, e.point(row.start, row.start, float64(row.Epoch)))
		}
	}
	return chart
}

// spent returns the chart of the ε spent so far by epoch. It omits epochs without a bound.
func (v *view) spent() display.Chart {
	chart := display.Chart{Width: halfWidth, Axis: "epoch", Unit: "ε", Exact: true,
		Name: "ε spent so far by epoch; the numbers are in the table of epochs"}
	for _, row := range v.rows {
		if row.spent != nil {
			chart.Points = append(chart.Points, display.Point{Label: row.start, At: float64(row.Epoch),
				Estimate: *row.spent, Lo: *row.spent, Hi: *row.spent, Truth: math.NaN()})
		}
	}
	if len(chart.Points) < 2 {
		chart.Points = nil
	}
	return chart
}

// largest returns the indices of the entries farthest from 0, at most maxSeries, ascending.
func (v *view) largest() []int {
	order := make([]int, len(v.Estimate))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(math.Abs(v.Estimate[b]), math.Abs(v.Estimate[a]))
	})
	order = order[:min(len(order), maxSeries)]
	slices.Sort(order)
	return order
}

func (v *view) bars() display.Chart {
	ticks := verifier.Ticks(v.Asked)
	shown := min(len(v.Estimate), maxEntries)
	chart := display.Chart{Width: chartWidth, Bars: true, Axis: v.Entry,
		Name: fmt.Sprintf("%s, %d bars with intervals; the numbers are in the table below", v.Measure, shown)}
	if v.Asked.Query.Info().Shape == task.PerBin {
		if chart.Unit = "clients"; !v.Asked.Input.Labels {
			chart.Axis = "value, from"
		}
	}
	for j := range shown {
		chart.Points = append(chart.Points, entryOf(&v.Answer, j).point(v.Labels[j], ticks[j], float64(j)))
	}
	return chart
}

func (e *estimate) point(label, tick string, at float64) display.Point {
	return display.Point{Label: label, Short: tick, At: at, Estimate: e.value, Lo: e.lo, Hi: e.hi, Error: e.err,
		Truth: math.NaN(), Wide: e.wide}
}
