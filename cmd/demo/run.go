package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

// result is what the demo prints: the verifier's report, and the true answer, which only a simulation knows.
type result struct {
	*verifier.Report
	Hops           int             `json:"hops"`
	Truth          verifier.Values `json:"truth"`           // Over the clipped values of clients in released batches.
	TruthUnclipped verifier.Values `json:"truth_unclipped"` // Over these clients' values in the file.
	ClippedShare   float64         `json:"clipped_share"`   // Fraction of these clients whose value was clipped.
	MessagesSent   uint64          `json:"messages_sent"`
	Withheld       uint64          `json:"withheld"`
	ElapsedSeconds float64         `json:"elapsed_seconds"`

	// For strings, instead of the truths above: the frequent texts and all listed texts.
	TrueTexts []trueText `json:"true_texts,omitempty"`

	// With --nobody-honest: what the attacker sees of one client, for noise by clients and by relays.
	Sights []*sight `json:"sights,omitempty"`
}

// run simulates all clients and prints the estimate. Then it serves the page, unless --headless is given.
func run(ctx context.Context, cmd *cobra.Command, o *options) error {
	rows, err := o.values()
	if err != nil {
		return err
	}
	if err := o.checkPage(len(rows[0])); err != nil {
		return err
	}
	values := o.clientValues(rows)
	draft, err := o.draft("demo", o.batch, len(rows[0]))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "doona-demo-")
	if err != nil {
		return fmt.Errorf("couldn't make a temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	var site net.Listener
	if !o.headless { // open the page's address before the tasks, which list its origins
		if site, err = o.listenSite(); err != nil {
			return err
		}
		defer site.Close()
		o.origins = originsOf(site)
	}
	begin := time.Now()
	fmt.Fprintf(cmd.ErrOrStderr(),
		"hops: %d relays and a verifier on loopback, keys and batches in a temporary folder\n", o.hops)
	w, err := startWorld(ctx, dir, o, draft, len(rows[0]))
	if err != nil {
		return err
	}
	defer w.Stop()
	sent, err := w.main.play(ctx, values)
	if err != nil {
		return err
	}
	r, err := w.main.finish(ctx, o, rows, values, sent)
	if err != nil {
		return err
	}
	r.ElapsedSeconds = time.Since(begin).Seconds()
	if o.nobodyHonest {
		if r.Sights, err = w.attack.play(ctx, 1); err != nil {
			return err
		}
	}
	if err := cli.Print(cmd, r, func(out io.Writer) error { return r.print(out) }); err != nil || o.headless {
		return err
	}
	tasks := map[string]*pageTask{liveTask: newPageTask(w.live, o.words(w.live.Open.Task),
		func(i int) []float64 { return values[i%len(values)] })}
	for i, v := range vitals {
		tasks[v.name] = v.pageTask(w.vitals[i])
	}
	return w.servePage(ctx, cmd, o, site, tasks)
}

// finish waits until the verifier has every full batch. It then compares the verifier's report with the truth.
func (l *simulatedTask) finish(ctx context.Context, o *options, rows, values [][]float64, sent int) (*result, error) {
	full := uint64(sent) / l.Open.Batch.Size
	if err := l.waitBatches(ctx, full); err != nil {
		return nil, err
	}
	report, err := l.Verifier.Report()
	if err != nil {
		return nil, err
	}
	r := &result{Report: report, Hops: o.hops, MessagesSent: report.MessagesSent, Withheld: report.Withheld}
	if l.Open.Slots.Padding == task.PaddingFull { // under padding none, only the relay knows the size of the last batch
		r.MessagesSent = uint64(sent) * l.Open.Slots.PerLane * l.Open.Slots.Lanes
		r.Withheld += r.MessagesSent - report.MessagesSent
	}
	released := full * l.Open.Batch.Size
	if o.isText() {
		r.TrueTexts = compareTexts(report.Texts, values[:released])
		return r, nil
	}
	if r.Truth, err = truth(l.Open.Task, values[:released]); err != nil {
		return nil, err
	}
	r.TruthUnclipped, r.ClippedShare = unclipped(l.Open.Task, o, rows[:released])
	return r, nil
}

// truth returns the exact answer over the clipped values, which no party of a real deployment knows. For strings it
// returns nil: the demo compares texts one by one instead.
func truth(t *task.Task, values [][]float64) (verifier.Values, error) {
	if t.Query.Info().Shape == task.PerText {
		return nil, nil
	}
	sum, err := openloop.NewTruth(t)
	if err != nil {
		return nil, err
	}
	for _, value := range values {
		sum.Add(value)
	}
	answer, _, err := sum.Answer()
	return answer, err
}

// unclipped returns the exact answer over the original values. A histogram omits values outside its range. It also
// returns the fraction of values that clipping changed: of vectors for vectormean, else of numbers.
func unclipped(t *task.Task, o *options, rows [][]float64) (verifier.Values, float64) {
	out, moved, numbers, info := make(verifier.Values, max(t.Input.Bins, 1)), 0, 0, t.Query.Info()
	for _, row := range rows {
		clipped, of := planner.CountClipped(t, row)
		moved, numbers = moved+clipped, numbers+of
		switch {
		case info.Shape == task.PerBin && clipped == 0:
			bin, err := protocols.Category(t.Input, row)
			if err != nil {
				panic("demo: internal error: " + err.Error())
			}
			out[bin]++
		case info.Shape == task.PerBin:
		case info.YesNo():
			out[0] += o.clientValue(row)[0]
		default:
			for l, x := range row {
				out[l] += x
			}
		}
	}
	for l := range out {
		out[l] *= protocols.Scale(t.Query, uint64(len(rows)))
	}
	return out, float64(moved) / float64(numbers)
}

func (r *result) print(w io.Writer) error {
	if err := report.Print(w, r.Report); err != nil {
		return err
	}
	if r.Estimate != nil {
		if err := r.compare(w); err != nil {
			return err
		}
	}
	if r.Texts != nil {
		if err := r.printTexts(w); err != nil {
			return err
		}
	}
	if r.Sights == nil {
		return nil
	}
	return printSights(w, r.Sights)
}

func (r *result) compare(w io.Writer) error {
	worst := 0.0
	for j, truth := range r.Truth {
		worst = max(worst, math.Abs(r.Estimate[j]-truth)/r.StandardError[j])
	}
	if len(r.Truth) == 1 {
		fmt.Fprintf(w, "\nTruth %.6g (%.6g before clipping %.1f %% of the values); estimate %.6g.\n",
			r.Truth[0], r.TruthUnclipped[0], 100*r.ClippedShare, r.Estimate[0])
	} else {
		fmt.Fprintf(w, "\nTruth %v; %.1f %% of the values were clipped.\n", []float64(r.Truth), 100*r.ClippedShare)
	}
	_, err := fmt.Fprintf(w, "The estimate is at most %.1f standard errors off. %d clients took %.1f s.\n", worst,
		r.Users, r.ElapsedSeconds)
	return err
}
