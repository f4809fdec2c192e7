package verifier

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/wire/task"
)

// view is what the page shows: an account of the report, with charts.
type view struct {
	*account
	Home   string       // Address of the list of tasks; empty: there is none.
	Styles template.CSS // Only of a page in one file.
	Chart  template.HTML
	Over   template.HTML // A histogram's median by epoch.
}

// Widths of charts in pixels.
const (
	chartWidth = 1040
	halfWidth  = 500
)

func newView(r *Report, home string) *view {
	v := &view{account: newAccount(r), Home: home}
	over := look.Chart{Width: chartWidth, Marks: v.series(), Axis: "epoch",
		Name: v.Measure + " by epoch, with intervals; the numbers are in the table of epochs"}
	if v.Entry == "" {
		v.Chart = over.SVG()
		return v
	}
	over.Width = halfWidth
	if over.Name = "Median by epoch, with intervals; the numbers are in the table of epochs"; len(over.Marks) > 1 {
		v.Over = over.SVG()
	}
	v.Chart = v.bars().SVG()
	return v
}

// series are the estimates, or medians, of the epochs.
func (v *view) series() (out []look.Mark) {
	for _, e := range v.rows {
		if e.one != nil {
			out = append(out, e.one.mark(e.start, e.start, float64(e.Epoch)))
		}
	}
	return out
}

// bars is the chart of an answer with several entries.
func (v *view) bars() look.Chart {
	ticks := Ticks(v.task)
	shown := min(len(v.Estimate), maxEntries)
	chart := look.Chart{Width: chartWidth, Bars: true, Axis: v.Entry,
		Name: fmt.Sprintf("%s, %d bars with intervals; the numbers are in the table below", v.Measure, shown)}
	if v.task.Query.Info().Shape == task.PerBin {
		if chart.Unit = "clients"; !v.task.Input.Labels {
			chart.Axis = "value, from"
		}
	}
	for j := range shown {
		e := estimate{v.Estimate[j], v.Interval[j][0], v.Interval[j][1], v.StandardError[j], nil}
		chart.Marks = append(chart.Marks, e.mark(v.Labels[j], ticks[j], float64(j)))
	}
	return chart
}

func (e estimate) mark(label, tick string, at float64) look.Mark {
	return look.Mark{Label: label, Short: tick, At: at, Estimate: e.value, Lo: e.lo, Hi: e.hi, Error: e.err,
		Truth: math.NaN()}
}

// explanations say what findings mean.
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
	FindingAfterLast:    "batches of an epoch after its last one, which had fewer than n clients",
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
