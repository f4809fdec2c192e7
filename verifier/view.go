package verifier

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/wire/task"
)

// view is what the page shows: the report in words, charts and rows.
type view struct {
	*Report
	Question task.Task
	Home     string       // Address of the list of tasks; empty: there is none.
	Styles   template.CSS // Only of a page in one file.
	Percent  int          // Confidence.
	Measure  string       // What is estimated.
	Chart    template.HTML
	Over     template.HTML // A histogram's median by epoch.
	Hidden   int           // Entries that the chart and the table leave out.
	Entries  []entryView
	Rows     []epochView // The newest first.
	Released int         // How many of them have a released batch.
	Column   bool        // Some row has a number to show.
}

// entryView is an entry of an answer.
type entryView struct {
	Label            string
	Estimate, Lo, Hi float64
	Error, Worst     float64    // Standard errors.
	Band             [2]float64 // Of all entries at once.
}

// epochView is a line of the ledger; Spent is what it and all before it cost together, nil where nothing
// bounds that.
type epochView struct {
	EpochReport
	Start string
	Shown *entryView // The number, or a histogram's median; nil where there is neither.
	Spent *float64
}

// Widths of charts in pixels, and how many entries they have room for.
const (
	chartWidth = 1040
	halfWidth  = 500
	maxEntries = 512
)

func newView(r *Report, t *task.Task, home string) *view {
	info := t.Query.Info()
	measure := strings.ToUpper(info.Measure[:1]) + info.Measure[1:]
	v := &view{Report: r, Question: *t, Home: home, Percent: int(math.Round(100 * r.Confidence)), Measure: measure}
	labels, ticks := Labels(t), Ticks(t)
	shown := min(len(r.Estimate), maxEntries)
	v.Hidden = len(r.Estimate) - shown
	var bars []look.Mark
	for j := range shown {
		e := entryView{
			Estimate: r.Estimate[j], Lo: r.Interval[j][0], Hi: r.Interval[j][1],
			Error: r.StandardError[j], Worst: r.StandardErrorWorst[j], Band: r.Band[j],
		}
		tick := ""
		if len(labels) > 0 {
			e.Label, tick = labels[j], ticks[j]
		}
		v.Entries = append(v.Entries, e)
		bars = append(bars, e.mark(float64(j), tick))
	}
	var series []look.Mark
	spent := Ledger{Epsilon: new(float64)}
	for _, e := range r.Ledger.Epochs {
		spent.add(e)
		row := epochView{EpochReport: e, Start: dated(t, e.Epoch), Shown: headline(e), Spent: spent.Epsilon}
		v.Rows = append(v.Rows, row)
		if e.Batches > 0 {
			v.Released++
		}
		if row.Shown != nil {
			v.Column = true
			row.Shown.Label = row.Start
			series = append(series, row.Shown.mark(float64(e.Epoch), row.Start))
		}
	}
	slices.Reverse(v.Rows)
	over := look.Chart{Width: chartWidth, Marks: series, Axis: "epoch",
		Name: fmt.Sprintf("%s by epoch, with intervals; the numbers are in the table of epochs", v.Measure)}
	if len(labels) == 0 {
		v.Chart = over.SVG()
		return v
	}
	over.Width = halfWidth
	if over.Name = "Median by epoch, with intervals; the numbers are in the table of epochs"; len(series) > 1 {
		v.Over = over.SVG()
	}
	chart := look.Chart{Width: chartWidth, Marks: bars, Bars: true, Axis: info.Entry,
		Name: fmt.Sprintf("%s, %d bars with intervals; the numbers are in the table below", v.Measure, shown)}
	if info.Shape == task.PerBin {
		if chart.Unit, chart.Axis = "clients", "category"; !t.Input.Labels {
			chart.Axis = "value, from"
		}
	}
	v.Chart = chart.SVG()
	return v
}

func (e entryView) mark(at float64, tick string) look.Mark {
	label := e.Label
	if label == "" {
		label = tick
	}
	return look.Mark{Label: label, Short: tick, At: at, Estimate: e.Estimate, Lo: e.Lo, Hi: e.Hi, Truth: math.NaN()}
}

// headline returns what one number says of an epoch.
func headline(e EpochReport) *entryView {
	if e.Distribution != nil {
		m := e.Distribution.Median()
		return &entryView{Estimate: m.Estimate, Lo: m.Interval[0], Hi: m.Interval[1]}
	}
	if len(e.Estimate) != 1 {
		return nil
	}
	return &entryView{Estimate: e.Estimate[0], Lo: e.Interval[0][0], Hi: e.Interval[0][1]}
}

// dated returns when an epoch began, as finely as its length asks for.
func dated(t *task.Task, epoch uint64) string {
	format := "2 Jan 2006"
	switch length := time.Duration(t.Epochs.Length) * time.Second; {
	case length < time.Minute:
		format = "15:04:05"
	case length < 24*time.Hour:
		format = "2 Jan 15:04"
	}
	return epochStart(t, epoch).Format(format)
}

// Range says which values a client may have; empty for a count.
func (v *view) Range() string {
	in, info := v.Question.Input, v.Query.Info()
	switch lo, hi := look.Number(in.Lo.Float64()), look.Number(in.Hi.Float64()); {
	case info.Ball():
		return fmt.Sprintf("%d coordinates of length at most 1", in.Bins)
	case info.Shape == task.PerVector:
		return fmt.Sprintf("%d coordinates from %s to %s", in.Bins, lo, hi)
	case in.Labels:
		return fmt.Sprintf("one of %d categories", in.Bins)
	case info.Shape == task.PerBin:
		return fmt.Sprintf("%s to %s in %d bins", lo, hi, in.Bins)
	case info.YesNo():
		return ""
	default:
		return lo + " to " + hi
	}
}

// Lost names the hops that lost messages, with their numbers.
func (r *Report) Lost() string {
	var parts []string
	for _, m := range r.MissingByHop {
		if m.Messages > 0 {
			parts = append(parts, fmt.Sprintf("%d at %s", m.Messages, m.Hop))
		}
	}
	return strings.Join(parts, ", ")
}

// Explain says what a finding means.
func (f Finding) Explain() string { return explanations[f.Name] }

var explanations = map[FindingName]string{
	FindingDropped:     "slots that a relay dropped as unreadable or repeated",
	FindingUnreadable:  "slots that the verifier’s key does not open",
	FindingMalformed:   "slots that open to neither message nor cover",
	FindingOutOfDomain: "messages that are none of the protocol’s",
	FindingRepeated:    "slots that were there before",
	FindingDestroyed: "batches that a relay destroyed for being too small, and that are not what was left of " +
		"an epoch",
	FindingTooFew:       "batches with too few valid slots: withheld, and the promise does not hold for their clients",
	FindingIncomplete:   "batches without all their shares, withheld",
	FindingEquivocation: "numbers for which the last relay signed two batches; neither counts",
	FindingDuplicate:    "batches that came again, and count once",
	FindingGap:          "numbers of which no batch came",
	FindingErased:       "batches whose key is erased",
	FindingTruncated:    "batches that end early",
	FindingTampered:     "batches whose ciphertexts were changed",
	FindingSignature:    "batches that their last relay did not sign",
	FindingForeign:      "batches that are not of this task",
	FindingCounts:       "batches whose manifests do not add up",
	FindingChain:        "batches with a manifest that an earlier relay did not sign so",
	FindingUnread:       "files that cannot be read",
	FindingRefused:      "batches that are not as their relays signed them",
	FindingMissing:      "batches that the last relay did not hand over",
	FindingEnd:          "epochs that did not end as their relays should have signed",
	FindingQuarantined:  "kept files that were damaged, put aside and asked for anew",
}

// Median returns the quantile at 1/2.
func (d *Distribution) Median() Location {
	return d.Quantiles[slices.IndexFunc(d.Quantiles, func(q Location) bool { return q.Probability == 0.5 })]
}
