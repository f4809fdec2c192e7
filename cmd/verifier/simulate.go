package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/simulate"
	"github.com/doona-dp/doona/task"
	"github.com/doona-dp/doona/task/taskfile"
	"github.com/doona-dp/doona/verifier"
)

// simulation is what `verifier simulate --json` prints. Answers with several entries are arrays.
type simulation struct {
	Estimate          verifier.Values `json:"estimate"`
	Truth             verifier.Values `json:"truth"`
	Bias              verifier.Values `json:"bias"`
	BiasStandardError verifier.Values `json:"bias_standard_error"`
	EmpiricalVariance verifier.Values `json:"empirical_variance"`
	PredictedVariance verifier.Values `json:"predicted_variance"`
	RMSE              float64         `json:"rmse"`
	PredictedRMSE     float64         `json:"predicted_rmse"`
	MessagesPerUser   float64         `json:"messages_per_user"`
	Slots             *uint64         `json:"slots"`
	Repeats           int             `json:"repeats"`
	Fast              bool            `json:"fast"`
}

func simulateCommand() *cobra.Command {
	var taskPath, input, column string
	var repeats int
	cmd := &cobra.Command{
		Use:   "simulate --task FILE --input CSV|worst",
		Short: "Run a task's randomizer and analyzer on synthetic clients and compare with the prediction",
		Long: `Simulate runs the same randomizer and aggregate as the pipeline, one client per row of the
input, without encryption or relays. It burns no privacy budget. The task may be a draft: a JSON
document without relays, as 'verifier task new' writes it.

The truth and the predicted variance are exact for the given values, after clipping. With enough
repetitions, bias is within a few bias_standard_error of 0 and empirical_variance agrees with
predicted_variance; both are null for a single repetition.`,
		Example: `  verifier task new --query mean --range 0,180 --batch 1000 --epsilon 1 --delta 1e-6 --out t.json
  verifier simulate --task t.json --input flights.csv.gz --column delay_minutes --repeat 100
  verifier simulate --task t.json --input worst --repeat 10000 --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if repeats < 1 {
				return cli.Usagef("invalid repeat %d: want 1 or more", repeats)
			}
			t, _, err := taskfile.Load(taskPath)
			if err != nil {
				return err
			}
			m, err := registry.Open(t)
			if err != nil {
				return err
			}
			values, err := simulationInput(t, m, input, column)
			if err != nil {
				return err
			}
			bar := cli.Progress("simulating", repeats)
			out, err := simulate.Run(t, m, values, repeats, func() { bar.Add(1) })
			if err != nil {
				return err
			}
			return cli.Print(cmd, describe(t, out), func(w io.Writer) error { return printSimulation(w, t, len(values), out) })
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "task: a JSON document or a signed bundle")
	cmd.Flags().StringVar(&input, "input", "worst", "CSV file (may be gzip), or 'worst': a full batch of the worst-case value")
	cmd.Flags().StringVar(&column, "column", "", "column name or index (default: the only one); vectors take all columns")
	cmd.Flags().IntVar(&repeats, "repeat", 1, "repetitions, 1 or more")
	cli.Require(cmd, "task")
	return cmd
}

// simulationInput returns one value per client: rows of a file (all columns for a vector), or a
// batch of the worst value.
func simulationInput(t *task.Task, m protocols.Mechanism, input, column string) ([][]float64, error) {
	switch {
	case input == "worst":
		return slices.Repeat([][]float64{m.WorstValue()}, int(t.Batch.Size)), nil
	case t.Query == task.Vector || t.Query == task.VectorMean:
		return table.ReadRows(input, 0)
	}
	values, err := table.Read(input, column, 0)
	rows := make([][]float64, len(values))
	for i := range values {
		rows[i] = values[i : i+1]
	}
	return rows, err
}

func describe(t *task.Task, o *simulate.Outcome) *simulation {
	s := &simulation{
		Estimate: o.Estimate, Truth: o.Truth, EmpiricalVariance: o.Variance, PredictedVariance: o.PredictedVariance,
		Bias: make(verifier.Values, len(o.Truth)), RMSE: o.RMSE, PredictedRMSE: o.PredictedRMSE(),
		MessagesPerUser: o.MessagesPerUser, Repeats: o.Repeats,
	}
	for j := range o.Truth {
		s.Bias[j] = o.Estimate[j] - o.Truth[j]
		if o.Variance != nil {
			s.BiasStandardError = append(s.BiasStandardError, math.Sqrt(o.Variance[j]/float64(o.Repeats)))
		}
	}
	if t.Slots.Padding == task.PaddingFull {
		s.Slots = &t.Slots.PerLane
	}
	return s
}

func printSimulation(w io.Writer, t *task.Task, users int, o *simulate.Outcome) error {
	fmt.Fprintf(w, "%s of %d clients by %s, (%s, %s)-DP with %d honest, %d repetitions\n\n",
		t.Query, users, t.Protocol, t.Claim.Epsilon, t.Claim.Delta, t.Batch.Min, o.Repeats)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "\ttruth\testimate\tstd deviation\tpredicted")
	for j := range o.Truth {
		name, deviation := t.Query, "-"
		if len(o.Truth) > 1 {
			name = fmt.Sprintf("bin %d", j)
		}
		if o.Variance != nil {
			deviation = fmt.Sprintf("%.4g", math.Sqrt(o.Variance[j]))
		}
		fmt.Fprintf(tab, "%s\t%.6g\t%.6g\t%s\t%.4g\n", name, o.Truth[j], o.Estimate[j], deviation, math.Sqrt(o.PredictedVariance[j]))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nroot mean square error %.4g, predicted %.4g; %.3g messages per client\n", o.RMSE, o.PredictedRMSE(), o.MessagesPerUser)
	return err
}
