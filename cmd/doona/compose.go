package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// composeResult is what `doona compose` prints.
type composeResult struct {
	Epsilon float64      `json:"epsilon"`
	Delta   float64      `json:"delta"`
	Curve   [][2]float64 `json:"curve"` // [ε, δ] of all tasks together, by falling δ.
	Tasks   []composed   `json:"tasks"`
	Theorem string       `json:"theorem"`
}

// composed is the cost of the epochs of one task together.
type composed struct {
	Task    string  `json:"task"` // Name of the task's file.
	Epochs  uint64  `json:"epochs"`
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`

	open *task.Task
	law  *compose.Law
}

const (
	oneTheorem = "the epochs have one law, fixed before the first, and are composed (docs/proofs/loss-laws.md, " +
		"Theorem 3)"
	allTheorem = "the epochs of each task are composed; the costs of tasks, which may depend on earlier results, add up " +
		"(docs/proofs/budget.md, Theorem 4)"
)

func composeCommand() *cobra.Command {
	var epochs uint64
	var delta float64
	plot := ""
	cmd := &cobra.Command{
		Use:   "compose TASK...",
		Short: "Print the total privacy cost of all epochs of tasks",
		Long: `Compose the laws of privacy loss of a task's epochs. It checks the claim of each task, and prints the
total ε for a client who reports in every epoch, and the curve of ε over δ.

Someone may have chosen a task after seeing the results of another. So the costs of several tasks are
not composed but added up, and each task gets a share of δ. --delta is the total δ. Its default is the
sum of what the tasks, or their epochs, claim. --epochs replaces the number of epochs of each task: for
a stream, which has more, or for a draft, which has none.

--plot FILE.svg writes a chart of ε against the number of epochs, composed and added up.`,
		Example: `  doona init try
  doona compose try/task.bundle --epochs 365 --delta 1e-5`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			if given("delta") && !(delta > 0 && delta < 1) {
				return cli.Usagef("invalid --delta %v: want a number between 0 and 1", delta)
			}
			if given("epochs") && (epochs < 1 || epochs > mostEpochs) {
				return cli.Usagef("invalid --epochs %d: want 1 to %d", epochs, mostEpochs)
			}
			r, err := composeTasks(args, epochs, delta)
			if err != nil {
				return err
			}
			if plot != "" {
				if err := plotTasks(plot, r); err != nil {
					return err
				}
			}
			return cli.Print(cmd, r, func(w io.Writer) error { return printComposed(w, r) })
		},
	}
	cmd.Flags().Uint64Var(&epochs, "epochs", 0, "epochs of each task, 1 to 65536; default: the task's own")
	cmd.Flags().Float64Var(&delta, "delta", 0, "δ of all together, above 0 and below 1; default: what the tasks claim")
	cmd.Flags().StringVar(&plot, "plot", "", "write a chart of ε to this SVG file")
	return cmd
}

// composeTasks composes the epochs of each task, and adds up the ε and δ of the tasks.
func composeTasks(files []string, epochs uint64, delta float64) (*composeResult, error) {
	r := &composeResult{Theorem: oneTheorem}
	if len(files) > 1 {
		r.Theorem = allTheorem
	}
	claimed := 0.0
	for _, file := range files {
		one, err := readComposed(file, epochs)
		if err != nil {
			return nil, err
		}
		claimed += one.Delta
		r.Tasks = append(r.Tasks, *one)
	}
	if delta == 0 {
		delta = claimed
	}
	if !(delta < 1) {
		return nil, invalid.Field("delta", decimal.Format(delta, 3), "below 1: give --delta")
	}
	for i := range r.Tasks {
		r.Tasks[i].Delta *= delta / claimed
	}
	eps, err := r.at(1)
	if err != nil {
		return nil, err
	}
	r.Epsilon, r.Delta = eps, delta
	for i := range r.Tasks {
		if r.Tasks[i].Epsilon, err = r.Tasks[i].within(r.Tasks[i].Delta); err != nil {
			return nil, err
		}
	}
	for _, times := range []float64{100, 10, 1, .1, .01, .001} { // Omits a point if δ is too small for a task.
		if eps, err := r.at(times); err == nil && times*delta < 1 {
			r.Curve = append(r.Curve, [2]float64{eps, times * delta})
		}
	}
	return r, nil
}

// readComposed reads a task and checks its claim. The δ of the result is the claimed δ for this number of epochs.
func readComposed(file string, epochs uint64) (*composed, error) {
	t, _, err := taskfile.Load(file)
	if err != nil {
		return nil, err
	}
	m, err := registry.Open(t)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	c := &composed{Task: file, Epochs: epochs, open: t}
	if epochs == 0 {
		c.Epochs = max(1, t.Epochs.Count)
	}
	c.Delta = protocols.AddedClaims(t.Claim, c.copies()).Delta
	if total := t.Claim.Total; !total.IsZero() && c.Epochs == t.Epochs.Count {
		c.Delta = total.Delta.Value()
	}
	c.law, err = m.Law()
	return c, err
}

// within returns the ε of all the task's epochs together at this δ.
func (c *composed) within(delta float64) (float64, error) {
	law := func() (*compose.Law, error) { return c.law, nil }
	return protocols.EpochsEpsilon(c.open, law, c.copies(), delta)
}

// copies returns how many copies of the law cover one browser in the task's epochs.
func (c *composed) copies() uint64 { return c.open.MostCopies(c.Epochs) }

// at returns the sum of the tasks' ε if the δ of each task is multiplied by times.
func (r *composeResult) at(times float64) (sum float64, err error) {
	for i := range r.Tasks {
		eps, err := r.Tasks[i].within(min(times*r.Tasks[i].Delta, .999))
		if err != nil {
			return 0, err
		}
		if sum += eps; i > 0 {
			sum *= 1 + 1e-15
		}
	}
	return sum, nil
}

// plotTasks writes a chart of ε against the number of epochs, with a line for each task. Each epoch has an equal part
// of the task's δ.
func plotTasks(path string, r *composeResult) error {
	most := uint64(1)
	for _, c := range r.Tasks {
		most = max(most, c.Epochs)
	}
	together, added := display.Line{Name: "composed"}, display.Line{Name: "added up"}
	const points = 13
	for i := range points {
		n := math.Round(math.Pow(float64(most), float64(i)/(points-1)))
		eps, sum := 0.0, 0.0
		for _, c := range r.Tasks {
			epochs := min(n, float64(c.Epochs))
			of := c
			of.Epochs = uint64(epochs)
			one, err := of.within(c.Delta * epochs / float64(c.Epochs))
			if err != nil {
				return err
			}
			eps, sum = eps+one, sum+epochs*c.open.Claim.Epsilon.Value()
		}
		together.Points = append(together.Points, [2]float64{n, eps})
		added.Points = append(added.Points, [2]float64{n, sum})
	}
	chart := display.Plot{LogX: true, LogY: true, Title: "ε of epochs together, δ = " + decimal.Format(r.Delta, 4) +
		" of all",
		XLabel: "epochs", YLabel: "ε", Lines: []display.Line{together, added}}
	var svg strings.Builder
	chart.SVG(&svg)
	if err := os.WriteFile(path, []byte(svg.String()), 0o644); err != nil {
		return fmt.Errorf("couldn't write the chart: %w", err)
	}
	return nil
}

func printComposed(w io.Writer, r *composeResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Tasks {
		fmt.Fprintf(table, "%s\t%s epochs\tε = %s\tδ = %s\n", c.Task, strconv.FormatUint(c.Epochs, 10),
			decimal.Up(c.Epsilon, 4), decimal.Up(c.Delta, 4))
	}
	fmt.Fprintf(table, "together\t\tε = %s\tδ = %s\n", decimal.Up(r.Epsilon, 4), decimal.Up(r.Delta, 4))
	for _, point := range r.Curve {
		fmt.Fprintf(table, "\t\tε = %s\tδ = %s\n", decimal.Up(point[0], 4), decimal.Up(point[1], 4))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.Theorem)
	return err
}
