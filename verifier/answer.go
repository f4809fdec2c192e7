package verifier

import (
	"fmt"
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Answer is an estimate with its error bars, in the query's units. It is about all clients of the released batches,
// including clients whose messages are missing. In JSON, a value is an array if the answer has several entries.
type Answer struct {
	Reports uint64 `json:"reports"` // Clients whose messages were all counted; a lower bound if clients send several.
	Missing uint64 `json:"missing"` // Submissions in released batches that are not in Reports; an upper bound.

	Usable          bool   `json:"usable"`                     // If false, only an override shows the estimate.
	UnusableBecause string `json:"unusable_because,omitempty"` // Why it is unusable.
	Override        string `json:"override,omitempty"`         // Why the estimate is shown although it is unusable.

	Estimate Values `json:"estimate"`
	// Estimated from the data, plus a worst case for errors that the data cannot show, such as rounding. Ignores
	// missing reports.
	StandardError      Values    `json:"standard_error"`
	StandardErrorWorst Values    `json:"standard_error_worst"` // If all clients had the value with the largest error.
	Interval           Intervals `json:"interval"`             // Widened by the largest effect of missing reports.
	Band               Intervals `json:"band"`                 // Wider than Interval: holds for all entries at once.
	// Only for an epoch. Wider than Band: holds for all entries of all the task's epochs at once.
	BandOverEpochs Intervals `json:"band_over_epochs,omitempty"`
	// Why some intervals or bands are none; empty if there are all.
	NoneBecause string `json:"none_because,omitempty"`
	// The confidence of each interval by itself, and of each band as a whole.
	Confidence float64 `json:"confidence"`

	Processed *Processed `json:"processed,omitempty"` // The nearest possible answer; nil without an estimate.
}

// noBatch explains why there is no answer before the first batch. It is not a fault.
const noBatch = "no batch was released"

// shown is the override of an estimate that [Verifier.ShowUnusable] shows.
const shown = "shown although it is unusable"

// Estimate returns the answer to the aggregate of one complete batch of users clients, for callers that simulate
// batches. epochs is the number of epochs over which BandOverEpochs holds. If it is 0, the answer has no such band.
func Estimate(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, users, epochs uint64) Answer {
	return answer(t, m, agg, Counts{Users: users, Batches: 1}, false, epochs)
}

// answer turns an aggregate and the counts of lost messages into the query's answer. The answer has no estimate (null)
// if there are no reports, or if it is unusable and override is not set.
//
// The band uses Bonferroni's correction: for d entries, each interval has confidence 1 - (1-c)/d. It holds no matter
// how the errors of the entries depend on each other. epochs is the number of epochs over which BandOverEpochs holds.
// It is 0 for an answer over all epochs, which has no such band.
func answer(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, c Counts, override bool,
	epochs uint64) Answer {
	a := Answer{Confidence: Confidence}
	a.Missing = min(max(c.Lost, c.Users-min(agg.Reports(), c.Users)), c.Users)
	a.Reports = c.Users - a.Missing
	if agg.Reports() > 0 && t.Query.Info().Shape != task.PerText { // the answer for texts is the list of texts found
		a.estimate(t, m, agg, c.loss(), epochs)
	}
	switch {
	case c.Incomplete > 0:
		a.UnusableBecause = fmt.Sprintf("%d of %d batches lack messages and are left out, because without one "+
			"message the sum of a batch can be any number", c.Incomplete, c.Batches+c.Incomplete)
	case agg.Reports() == 0 && c.Batches > 0:
		a.UnusableBecause = "no client's report is in the batches that were released"
	case agg.Reports() == 0:
		a.UnusableBecause = noBatch
	case a.undetermined(t, agg, c.loss()):
		a.UnusableBecause = fmt.Sprintf("%d messages are missing, and could have changed the answer by its whole range",
			max(c.Lost, a.Missing))
	}
	switch a.Usable = a.UnusableBecause == ""; {
	case a.Usable:
	case override:
		a.Override = shown
	default:
		a = a.withoutResults()
	}
	if a.Estimate != nil {
		a.dropIntervals(t, c.loss().Clients)
		a.process(t, c.loss().Clients)
	}
	return a
}

// saysNothing explains why an interval is none.
const saysNothing = "it would contain every possible answer"

// dropIntervals replaces intervals that contain every possible answer of a number of clients by none.
func (a *Answer) dropIntervals(t *task.Task, clients uint64) {
	lo, hi := possibleAnswers(t, clients)
	for _, intervals := range []Intervals{a.Interval, a.Band, a.BandOverEpochs} {
		for j, i := range intervals {
			if intervals[j] = i.within(lo, hi); intervals[j].IsNone() {
				a.NoneBecause = saysNothing
			}
		}
	}
}

// possibleAnswers returns the least and the largest possible entry of the answer for a number of clients.
func possibleAnswers(t *task.Task, clients uint64) (lo, hi float64) {
	least, most := protocols.Contribution(t)
	scale := protocols.Scale(t.Query, clients) * float64(clients)
	return least * scale, most * scale
}

// confidencePerEpoch returns the confidence per epoch that gives [Confidence] for all epochs together: the root of
// order epochs (Šidák). Clients' values may depend on earlier epochs, but each epoch's noise is independent. So an
// epoch's intervals hold with this confidence given all earlier epochs, and all hold with the product. epochs counts
// all epochs of the task, not only those that have begun. So a band never changes later, and holds whenever it is read.
func confidencePerEpoch(epochs uint64) float64 { return math.Pow(Confidence, 1/float64(epochs)) }

// confidencePerEntry returns the confidence per entry that gives c for all entries together, by Bonferroni's
// correction.
func confidencePerEntry(c float64, entries int) float64 { return 1 - (1-c)/float64(entries) }

func (a *Answer) estimate(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, loss protocols.Loss,
	epochs uint64) {
	scale := protocols.Scale(t.Query, loss.Clients)
	worst := math.Sqrt(float64(agg.Reports())*m.Worst().Variance+dummyVariance(m, agg)) * scale
	totals := agg.Total()
	each := confidencePerEntry(Confidence, len(totals))
	intervals := protocols.Intervals{}
	for j, law := range agg.Errors() {
		missing := agg.LossEffect(loss, j)
		if missing.Parts > 0 {
			law = missing.Complete(law)
		}
		between := func(confidence float64) interval {
			lo, hi := intervals.Of(law, confidence)
			return interval{lo * scale, hi * scale}
		}
		a.Estimate = append(a.Estimate, missing.Estimate(totals[j])*scale)
		a.StandardError = append(a.StandardError, math.Sqrt(law.Variance())*scale)
		a.StandardErrorWorst = append(a.StandardErrorWorst, worst*missing.Growth())
		a.Interval = append(a.Interval, between(Confidence))
		a.Band = append(a.Band, between(each))
		if epochs > 0 {
			each := confidencePerEntry(confidencePerEpoch(epochs), len(totals))
			a.BandOverEpochs = append(a.BandOverEpochs, between(each))
		}
	}
}

// dummyVariance returns the largest variance that relays' dummies add to an entry of the total.
func dummyVariance(m protocols.Mechanism, agg protocols.Aggregate) float64 {
	dummies := protocols.CapabilitiesOf(m).Dummies
	if dummies == nil {
		return 0
	}
	return slices.Max(dummies(agg).DummyVariance())
}

// undetermined reports whether missing messages make the interval of an entry meaningless.
func (a *Answer) undetermined(t *task.Task, agg protocols.Aggregate, loss protocols.Loss) bool {
	lo, hi := protocols.Contribution(t)
	span, scale := (hi-lo)*float64(loss.Clients), protocols.Scale(t.Query, loss.Clients)
	for j, i := range a.Interval {
		if agg.LossEffect(loss, j).Uninformative((i[1]-i[0])/scale, span) {
			return true
		}
	}
	return false
}

// IsWaiting reports whether there is no answer only because no batch was released yet.
func (a *Answer) IsWaiting() bool { return a.UnusableBecause == noBatch }

// IsWithheld reports whether the answer is withheld because the budget is too small.
func (a *Answer) IsWithheld() bool { return a.UnusableBecause == notCovered }
