package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/verifier"
)

// watch prints every batch that arrives, until ctx or the task ends.
func watch(ctx context.Context, cmd *cobra.Command, t *quickstart.RunningTask) error {
	tick := time.NewTicker(quickstart.Pull)
	defer tick.Stop()
	last, err := t.Verifier.Report()
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintf(cmd.ErrOrStderr(), "\nEnded. The next start continues with the task in %s.\n", folder)
			return nil
		case <-tick.C:
		}
		now := time.Now()
		if now.Unix() >= int64(t.Open.Epochs.Over()) {
			return errors.New("the task has ended: start again to get another task")
		}
		report, err := t.Verifier.Report()
		if err != nil {
			return err
		}
		if report.Batches == last.Batches && report.Withheld == last.Withheld {
			continue
		}
		n := newProgress(last, report)
		if err := cli.Print(cmd, n, func(out io.Writer) error { return n.print(out, now) }); err != nil {
			return err
		}
		last = report
	}
}

// progress counts what the batches have contained so far.
type progress struct {
	Reports   uint64             `json:"reports"`   // Since the start of the task.
	Batches   uint64             `json:"batches"`   // Since the start of the task.
	Destroyed uint64             `json:"destroyed"` // Messages of incomplete batches, since the start of the task.
	Estimate  verifier.Values    `json:"estimate"`
	Interval  verifier.Intervals `json:"interval"`
	Labels    []string           `json:"labels,omitempty"` // Names of the estimate's entries.

	fresh, lost uint64 // Reports decoded, and messages destroyed, since the last printed line.
	measure     string
	errors      verifier.Values
}

func newProgress(last, r *verifier.Report) *progress {
	return &progress{Reports: r.Reports, Batches: r.Batches, Destroyed: r.Withheld, Estimate: r.Estimate,
		Interval: r.Interval, Labels: r.Labels, fresh: r.Reports - last.Reports, lost: r.Withheld - last.Withheld,
		measure: r.Measure, errors: r.StandardError}
}

// mostEntries is the most entries of an estimate that a line shows; the page shows all.
const mostEntries = 8

func (n *progress) print(w io.Writer, now time.Time) error {
	at := now.Format(time.TimeOnly)
	if n.lost > 0 {
		if _, err := fmt.Fprintf(w, "%s  %s destroyed: the epoch ended before a batch was full\n", at,
			plural(n.lost, "message")); err != nil {
			return err
		}
	}
	if n.fresh == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s  %s decoded, %d in all: %s\n", at, plural(n.fresh, "report"), n.Reports, n.answer())
	return err
}

func (n *progress) answer() string {
	if len(n.Labels) == 0 && len(n.Estimate) == 1 {
		if n.Interval[0].IsNone() {
			return fmt.Sprintf("%s %s (no interval)", n.measure, display.Figure(n.Estimate[0], n.errors[0]))
		}
		return fmt.Sprintf("%s %s (95 %%: %s to %s)", n.measure, display.Figure(n.Estimate[0], n.errors[0]),
			display.Figure(n.Interval[0][0], n.errors[0]), display.Figure(n.Interval[0][1], n.errors[0]))
	}
	var entries []string
	more := 0
	for i, x := range n.Estimate {
		switch {
		case x < .5:
		case len(entries) == mostEntries:
			more++
		default:
			entries = append(entries, fmt.Sprintf("%s × %s", display.Number(x), n.Labels[i]))
		}
	}
	text := strings.Join(entries, ", ")
	if more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func plural(n uint64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
