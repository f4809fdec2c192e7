package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// simulatedLocation is the mean or a quantile of the clipped values, over all repetitions.
type simulatedLocation struct {
	Name              string   `json:"name"`
	Truth             float64  `json:"truth"`
	Estimate          float64  `json:"estimate"`           // Mean over the repetitions.
	StandardDeviation *float64 `json:"standard_deviation"` // Of the estimates; null for one repetition.
	Coverage          float64  `json:"coverage"`           // Share of the intervals that contained the truth.

	covered         int
	errors, squares float64 // Sums of the estimates' errors and of their squares.
}

// located simulates the mean and quantiles of reports: it compares those of many batches of the same clients with the
// truth.
type located struct {
	task      *task.Task
	mechanism protocols.Mechanism
	sorted    []float64 // The clients' clipped values.

	mu      sync.Mutex // Guards the fields below.
	repeats int
	list    []*simulatedLocation // Empty if the task's reports have no quantiles.
}

func newLocated(t *task.Task, m protocols.Mechanism, values [][]float64) *located {
	l := &located{task: t, mechanism: m}
	if t.Query.Info().Shape != task.PerBin || t.Input.Labels {
		return l
	}
	for _, row := range values {
		l.sorted = append(l.sorted, min(max(row[0], t.Input.Lo.Float64()), t.Input.Hi.Float64()))
	}
	slices.Sort(l.sorted)
	return l
}

// truth returns the true mean of the clients' values, or their true p-quantile: the least value x such that at least a
// share p of the values is at most x.
func (l *located) truth(of verifier.Location) float64 {
	n := float64(len(l.sorted))
	if of.Probability > 0 {
		return l.sorted[max(0, int(math.Ceil(of.Probability*n-1e-9))-1)]
	}
	mean := 0.0
	for _, x := range l.sorted {
		mean += x / n
	}
	return mean
}

// add compares the mean and the quantiles of one batch with the truth.
func (l *located) add(batch protocols.Aggregate) {
	d := verifier.DistributionOf(l.task, l.mechanism, batch)
	if d == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.repeats++
	for i, found := range append(slices.Clone(d.Quantiles), d.Mean) {
		if l.repeats == 1 {
			l.list = append(l.list, &simulatedLocation{Name: found.Name, Truth: l.truth(found)})
		}
		s := l.list[i]
		e := found.Estimate - s.Truth
		s.errors, s.squares = s.errors+e, s.squares+e*e
		if found.Interval[0] <= s.Truth && s.Truth <= found.Interval[1] {
			s.covered++
		}
	}
}

// result returns the comparison of each quantile and the mean, over all batches.
func (l *located) result() []*simulatedLocation {
	r := float64(l.repeats)
	for _, s := range l.list {
		mean := s.errors / r
		s.Estimate, s.Coverage = s.Truth+mean, float64(s.covered)/r
		if l.repeats > 1 {
			deviation := math.Sqrt(max(0, s.squares-r*mean*mean) / (r - 1))
			s.StandardDeviation = &deviation
		}
	}
	return l.list
}

func printLocations(w io.Writer, list []*simulatedLocation) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "of the values\ttruth\testimate\tstd deviation\ttruth in interval")
	for _, s := range list {
		deviation := "-"
		if s.StandardDeviation != nil {
			deviation = fmt.Sprintf("%.4g", *s.StandardDeviation)
		}
		fmt.Fprintf(tab, "%s\t%.6g\t%.6g\t%s\t%.2f %%\n", s.Name, s.Truth, s.Estimate, deviation, 100*s.Coverage)
	}
	return tab.Flush()
}
