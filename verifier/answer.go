package verifier

import (
	"fmt"
	"math"
	"slices"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Answer is an estimate with its error bars, in the query's units; arrays where there are several entries.
// It is of all clients of the released batches, also of those whose messages are missing.
type Answer struct {
	Reports uint64 `json:"reports"` // Clients all of whose messages were counted; at least, if there are several.
	Missing uint64 `json:"missing"` // Submissions of released batches without a counted report; at most.

	Usable          bool   `json:"usable"`                     // False: no estimate, unless shown by an override.
	UnusableBecause string `json:"unusable_because,omitempty"` // Why it is not.
	Override        string `json:"override,omitempty"`         // Why it is shown all the same.

	Estimate Values `json:"estimate"`
	// From the data; of what they cannot show, such as rounding, the worst. Without what is missing.
	StandardError      Values    `json:"standard_error"`
	StandardErrorWorst Values    `json:"standard_error_worst"` // For as many clients who all have the worst-case value.
	Interval           Intervals `json:"interval"`             // From the data, and the most that is missing.
	Band               Intervals `json:"band"`                 // Wider: all entries are in it at once.
	// Of an epoch's answer, wider still: all entries of all the task's epochs are in theirs at once.
	BandOverEpochs Intervals `json:"band_over_epochs,omitempty"`
	// Of each interval by itself, and of each band as a whole.
	Confidence float64 `json:"confidence"`

	Processed *Processed `json:"processed,omitempty"` // The nearest possible answer, with the estimate.
}

// noBatch is why there is no answer where nothing is wrong: there is nothing to answer from yet.
const noBatch = "no batch was released"

// shown is the override of [Verifier.ShowUnusable].
const shown = "shown although it is unusable"

// Estimate returns the answer of an aggregate of one batch of n clients of which nothing is missing, as reports have
// it: for who has simulated the batch. Of one of so many epochs it has bands over all of them, too; epochs is 0 where
// it is of all.
func Estimate(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, users, epochs uint64) Answer {
	return answer(t, m, agg, Counts{Users: users, Batches: 1}, false, epochs)
}

// answer turns an aggregate, and what was lost beside it, into the query's answer. Without reports, and
// where it is unusable, it is empty (null).
//
// The band is Bonferroni's: intervals of confidence 1 - (1-c)/d each, for d entries. Their errors depend on
// each other, and it holds however they do. That over epochs is of an answer that is one of so many, 0 where it is
// of all.
func answer(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, c Counts, override bool,
	epochs uint64) Answer {
	a := Answer{Confidence: Confidence}
	a.Missing = min(max(c.Lost, c.Users-min(agg.Reports(), c.Users)), c.Users)
	a.Reports = c.Users - a.Missing
	if agg.Reports() > 0 && t.Query.Info().Shape != task.PerText { // of texts those found are the answer
		a.estimate(t, m, agg, c.loss(), epochs)
	}
	switch {
	case c.Incomplete > 0:
		a.UnusableBecause = fmt.Sprintf("%d of %d batches lack messages, and with one missing the sum of a "+
			"batch can be any number: these batches are left out", c.Incomplete, c.Batches+c.Incomplete)
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
		a.process(t, c.loss().Clients)
	}
	return a
}

// confidencePerEpoch returns the confidence of each of so many epochs that makes [Confidence] of all at once: its root
// (Šidák). An epoch's randomness is its own. Given all that came before, on which its values may depend, its
// intervals hold with that confidence, so all hold with the product. It is that of all the task's epochs and not of
// those that have come: so a band does not change later, and holds whenever one looks.
func confidencePerEpoch(epochs uint64) float64 { return math.Pow(Confidence, 1/float64(epochs)) }

// confidencePerEntry returns the confidence of each of so many entries that makes c of all at once, by Bonferroni.
func confidencePerEntry(c float64, entries int) float64 { return 1 - (1-c)/float64(entries) }

// estimate fills the estimate and its error bars.
func (a *Answer) estimate(t *task.Task, m protocols.Mechanism, agg protocols.Aggregate, loss protocols.Loss,
	epochs uint64) {
	scale := protocols.Scale(t.Query, loss.Clients)
	worst := math.Sqrt(float64(agg.Reports())*m.Worst().Variance+dummyVariance(m, agg)) * scale
	totals := agg.Total()
	each := confidencePerEntry(Confidence, len(totals))
	intervals := protocols.Intervals{}
	for j, law := range agg.Errors() {
		missing := agg.Missing(loss, j)
		if missing.Parts > 0 {
			law = missing.Complete(law)
		}
		interval := func(confidence float64) [2]float64 {
			lo, hi := intervals.Of(law, confidence)
			return [2]float64{lo * scale, hi * scale}
		}
		a.Estimate = append(a.Estimate, missing.Estimate(totals[j])*scale)
		a.StandardError = append(a.StandardError, math.Sqrt(law.Variance())*scale)
		a.StandardErrorWorst = append(a.StandardErrorWorst, worst*missing.Growth())
		a.Interval = append(a.Interval, interval(Confidence))
		a.Band = append(a.Band, interval(each))
		if epochs > 0 {
			a.BandOverEpochs = append(a.BandOverEpochs, interval(confidencePerEntry(confidencePerEpoch(epochs), len(totals))))
		}
	}
}

// dummyVariance returns the largest variance that what relays added has in an entry of the total.
func dummyVariance(m protocols.Mechanism, agg protocols.Aggregate) float64 {
	diluted := protocols.CapabilitiesOf(m).Diluted
	if diluted == nil {
		return 0
	}
	return slices.Max(diluted(agg).DummyVariance())
}

// undetermined says whether an entry's interval says nothing because of what is missing.
func (a *Answer) undetermined(t *task.Task, agg protocols.Aggregate, loss protocols.Loss) bool {
	lo, hi := protocols.Contribution(t)
	span, scale := (hi-lo)*float64(loss.Clients), protocols.Scale(t.Query, loss.Clients)
	for j, i := range a.Interval {
		if agg.Missing(loss, j).Drowns((i[1]-i[0])/scale, span) {
			return true
		}
	}
	return false
}

// IsWaiting says whether nothing is wrong and there is nothing to answer from yet.
func (a *Answer) IsWaiting() bool { return a.UnusableBecause == noBatch }

// IsWithheld says whether the answer is left out because the budget does not suffice for it.
func (a *Answer) IsWithheld() bool { return a.UnusableBecause == notCovered }
