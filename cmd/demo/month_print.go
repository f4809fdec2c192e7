package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
)

// notOfMonth lists the flags that --month refuses.
var notOfMonth = []string{"input", "column", "delimiter", "header", "decimal", "task", "query", "range", "bins", "length", "padding", "lanes", "users",
	"batch", "honest", "epsilon", "delta", "noise", "local-epsilon", "nobody-honest", "hops", "listen", "hosts", "epoch", "www"}

// checkMonth refuses flags that have no effect with --month.
func (o *options) checkMonth(cmd *cobra.Command) error {
	if !o.headless {
		return cli.Usagef("invalid month true: want --headless with it, or open the page /month/ of the demo")
	}
	return cli.Refuse(cmd, "with --month: its questions are fixed", notOfMonth...)
}

func printMonth(ctx context.Context, cmd *cobra.Command, seed uint64) error {
	bar := cli.Progress("simulating", monthSteps)
	m, err := makeMonth(ctx, seed, func() { bar.Add(1) })
	if err != nil {
		return err
	}
	return cli.Print(cmd, m, m.print)
}

// shownPages is how many of the site's pages are printed; --json prints all.
const shownPages = 20

func (m *month) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "A site's month, %s to %s: %s devices reported once a day to each of %d questions.\n%s\n", m.From, m.To,
		display.Number(float64(m.Reports)), len(m.Questions), m.Made)
	fmt.Fprintf(w, "\nvisits that stayed\treports\testimate\tfrom\tto\ttruth\n")
	for _, d := range m.Visits.Days {
		d.print(w, m.Visits.Error, display.Number(float64(d.Reports)))
	}
	m.Visits.Total.print(w, m.Visits.Error, display.Number(float64(m.Reports)))
	for _, l := range []struct {
		name string
		list *monthList
		most int
	}{{"page", m.Pages, shownPages}, {"referrer", m.Referrers, len(m.Referrers.Entries)},
		{"country", m.Countries, len(m.Countries.Entries)}} {
		l.list.print(w, l.name, l.most)
	}
	m.Speed.print(w)
	m.Budget.print(w)
	fmt.Fprintf(w, "\n%s of the intervals of single days contain the truth, and %s of those of the month.\n", m.Coverage.Days,
		m.Coverage.Month)
	return w.Flush()
}

// String says how many intervals contain the true answer.
func (c heldCount) String() string {
	return fmt.Sprintf("%s of %s (%.2f %%)", display.Number(float64(c.Held)), display.Number(float64(c.Intervals)),
		100*float64(c.Held)/float64(c.Intervals))
}

// print writes a line of a table. For an entry below the noise floor it writes no estimate.
func (e monthEntry) print(w io.Writer, err float64, more ...string) {
	fmt.Fprintf(w, "%s\t", e.Name)
	for _, text := range more {
		fmt.Fprintf(w, "%s\t", text)
	}
	estimate := display.Figure(e.Estimate, err)
	if !e.Seen {
		estimate = "below the floor"
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", estimate, display.Figure(max(e.Interval[0], 0), err), display.Figure(e.Interval[1], err),
		display.Number(e.Truth))
}

func (l *monthList) print(w io.Writer, name string, most int) {
	fmt.Fprintf(w, "\n%s\testimate\tfrom\tto\ttruth\n", name)
	for _, e := range l.Entries[:most] {
		e.print(w, l.Error)
	}
	fmt.Fprintf(w, "%d of %d are above the noise floor of %s.\n", l.Seen, len(l.Entries), display.Figure(l.Floor, l.Error))
}

// text formats a figure with its interval and the true number, each multiplied by scale.
func (f *figure) text(scale float64) string {
	if f == nil {
		return "too few\t\t"
	}
	err := scale * (f.Interval[1] - f.Interval[0]) / 4
	return fmt.Sprintf("%s\t%s to %s\t%s", display.Figure(scale*f.Estimate, err), display.Figure(scale*f.Interval[0], err),
		display.Figure(scale*f.Interval[1], err), display.Figure(scale*f.Truth, err))
}

func (s *monthSpeed) print(w io.Writer) {
	fmt.Fprintf(w, "\nlargest contentful paint\testimate\tinterval\ttruth\n")
	for _, d := range s.Devices {
		fmt.Fprintf(w, "%s: reports\t%s\n", d.Name, d.Reports.text(1))
		fmt.Fprintf(w, "%s: good, up to %g s, %%\t%s\n", d.Name, goodPaint, d.Good.text(100))
		fmt.Fprintf(w, "%s: poor, above %g s, %%\t%s\n", d.Name, float64(poorPaint), d.Poor.text(100))
		fmt.Fprintf(w, "%s: 75 %% quantile, s\t%s\n", d.Name, d.P75.text(1))
	}
	for _, p := range s.Pairs {
		fmt.Fprintf(w, "%s less %s: good, points\t%s\n", p.First, p.Second, p.Good.text(100))
		fmt.Fprintf(w, "%s less %s: poor, points\t%s\n", p.First, p.Second, p.Poor.text(100))
	}
}

func (b *monthBudget) print(w io.Writer) {
	fmt.Fprintf(w, "\nbudget\tweight\tε a day\tε of the month, composed\tadded up\n")
	for _, q := range b.Questions {
		fmt.Fprintf(w, "%s\t%g\t%.4g\t%.4g\t%.4g\n", q.Name, q.Weight, q.Epsilon, q.Composed, q.Added)
	}
	fmt.Fprintf(w, "all together\t\t\t%.4g\t%.4g\n", b.Composed, b.Added)
	fmt.Fprintf(w, "The budget is (%g, %g). If each question is composed and the questions are added up, it is ε = %.4g.\n",
		b.Epsilon, b.Delta, b.Each)
}
