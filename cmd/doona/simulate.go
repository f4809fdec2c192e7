package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// simulation is what `doona simulate --json` prints. Answers with several entries are arrays.
type simulation struct {
	Estimate          verifier.Values `json:"estimate"`
	Truth             verifier.Values `json:"truth"`
	Bias              verifier.Values `json:"bias"`
	BiasStandardError verifier.Values `json:"bias_standard_error"`
	EmpiricalVariance verifier.Values `json:"empirical_variance"`
	PredictedVariance verifier.Values `json:"predicted_variance"`
	// The part of PredictedVariance due to coordinates that clients do not report.
	SamplingVariance verifier.Values `json:"sampling_variance,omitempty"`
	Coverage         verifier.Values `json:"coverage"`      // Share of the 95 % intervals that contained the truth.
	CoverageWide     verifier.Values `json:"coverage_99_9"` // The same for the 99.9 % intervals.
	// Share of the repetitions whose 95 % band contained the truth in all entries.
	BandCoverage float64 `json:"band_coverage"`
	// Root mean square error, in units of the standard error that each batch's data give.
	RMSZ            verifier.Values `json:"rms_z"`
	RMSE            float64         `json:"rmse"`
	PredictedRMSE   float64         `json:"predicted_rmse"`
	MessagesPerUser float64         `json:"messages_per_user"`
	Slots           *uint64         `json:"slots"`
	Users           int             `json:"users"`
	LeftOut         int             `json:"left_out"`         // Rows of the input that do not fit in a batch.
	Sample          uint64          `json:"sample,omitempty"` // Seed of --sample; omitted if the first rows are used.
	ClippedShare    float64         `json:"clipped_share"`    // Share of the values that the task clips.
	// Only for a histogram over a range: its mean and quantiles.
	Locations       []*simulatedLocation `json:"locations,omitempty"`
	Repeats         int                  `json:"repeats"`
	Fast            bool                 `json:"fast"`
	Protocol        string               `json:"protocol"` // The task's, or "laplace" under --central.
	Malicious       int                  `json:"malicious"`
	Attack          string               `json:"attack,omitempty"`
	Unchecked       doubts               `json:"unchecked,omitempty"` // Doubts that the user waived.
	EpsilonNoHonest *float64             `json:"epsilon_no_honest"`   // ε′, as in the verifier's reports.
	LocalEpsilon    *float64             `json:"local_epsilon"`
	EpsilonHonest   float64              `json:"epsilon_honest"`

	promises []string // The guarantees above, in words.
}

// confidences are the confidence levels at which simulate measures coverage.
var confidences = []float64{verifier.Confidence, 0.999}

// simulateFlags are the flags of `doona simulate`.
type simulateFlags struct {
	task, input    string
	format         table.Format
	sample         uint64
	central, table bool
	unchecked      bool
	options        planner.Trial
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --task FILE --input CSV|worst",
		Short: "Run a task's randomizer and analyzer on synthetic clients and compare with the prediction",
		Long: `Simulate runs the same randomizer and aggregate as the pipeline, one client per row of the
input, without encryption or relays. It uses no privacy budget. The task may be a draft: a JSON
document without relays, as 'doona task new' writes it.

Every repetition is one batch of the same clients. They are the first n rows, because relays close a
batch at n reports, the task's batch size. The result counts the rows that were left out. The first
rows of a sorted file are not typical: --sample takes n random rows.

The truth and the predicted variance are exact for these clients' values, after clipping, if all are
honest. They say nothing about a larger population. The result has:
  bias                within a few bias_standard_error of 0 after enough repetitions
  empirical_variance  agrees with predicted_variance; both are null for a single repetition
  coverage            share of repetitions whose 95 % interval, from its data alone, contains the truth
  coverage_99_9       the same for the 99.9 % intervals
  band_coverage       share of repetitions whose 95 % band contains all entries at once
  rms_z               root mean square error, in standard errors from the data: about 1, or less if the
                      data cannot show how values were rounded
For a histogram over a range, the quantiles and the mean of a report are compared in the same way.

Simulate refuses a task with a claim that is not proven, or that no relay would serve, or a batch that
no relay would release: exit status 1. --unchecked simulates it anyway, and the result says so.

With --malicious F the last F clients attack; bias and variance show the effect:
  max             they send the messages that move the answer most
  one-coordinate  they send all messages to one bin or coordinate
  drop-noise      they send their values without the noise on which the others rely

For a task for strings, the input has one text in a line. Simulate searches each batch as the verifier
would, and prints the frequent and the listed texts: their clients, the number of batches that list
them, the mean of their counts, and the number of intervals that contain the truth.

--fast draws the aggregate of the honest clients from its distribution and not message by message, if
the protocol has a simple one. --central simulates the discrete Laplace mechanism of a trusted curator
instead of the task's protocol: the least error to expect at the same epsilon.

--table simulates small tasks of every protocol and query, with 100 %, 90 % and 80 % honest clients, as
in docs/simulations.md. It fails if a task differs from its prediction: if the bias exceeds 5 standard
errors, if a variance is outside its two-sided 1e-6 interval, or if a coverage is more than 5 standard
errors below 94.5 % for the 95 % intervals, or 99.8 % for the 99.9 % intervals. Coverage is measured
for different values, and with the worst value for all clients. A second table has the coverage of
intervals of texts beside frequent or rare other texts, from a tenth as many batches, each with new hashes.`,
		Example: `  doona task new --query mean --protocol splitmix --range 0,180 --batch 1000 --epsilon 1 --delta 1e-6 \
      --out t.json
  doona simulate --task t.json --input cmd/demo/flights.csv.gz --column delay_minutes --repeat 100
  doona simulate --task t.json --input worst --repeat 10000 --fast --json
  doona simulate --task t.json --input worst --repeat 1000 --malicious 5 --attack max
  doona simulate --table --repeat 5000`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "task: a JSON document or a signed bundle")
	flags.StringVar(&f.input, "input", worst,
		"CSV file (may be gzip), or 'worst': a full batch of the worst-case value; for strings a file of lines")
	flags.StringVar(&f.format.Column, "column", "",
		"column name or index from 0 (default: the only one); vectors take all columns, and not this flag")
	cli.ReadsTables(cmd, &f.format)
	flags.Uint64Var(&f.sample, "sample", 0,
		"take n random rows, drawn by this seed, and not the first n; 0: the first")
	flags.IntVar(&f.options.Repeats, "repeat", 1, "repetitions, 1 to 1000000000")
	flags.IntVar(&f.options.Malicious, "malicious", 0, "how many clients, the last ones, attack; 0 to all")
	flags.StringVar(&f.options.Attack, "attack", protocols.AttackMax,
		"what malicious clients do: max, one-coordinate or drop-noise")
	flags.BoolVar(&f.options.Fast, "fast", false, "draw the aggregate of the honest clients and not their messages")
	flags.BoolVar(&f.central, "central", false, "simulate the central discrete Laplace mechanism instead")
	flags.BoolVar(&f.unchecked, "unchecked", false, "continue with a false claim, or a batch that no relay would release")
	flags.BoolVar(&f.table, "table", false,
		"simulate small tasks of every protocol and compare each with its prediction; without --task")
	return cmd
}

func (f *simulateFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	if f.table {
		return f.printTable(cmd)
	}
	t, _, err := taskfile.Load(f.task)
	if err != nil {
		return err
	}
	if t.Query.Info().Shape == task.PerText {
		return f.simulateTexts(cmd, t)
	}
	if err := t.Input.CheckEntries(); err != nil {
		return err
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	if isVector(t) {
		if err := cli.Refuse(cmd, "for query "+string(t.Query)+": every column is a coordinate", "column"); err != nil {
			return err
		}
		why := "for query " + string(t.Query) + ": the central mechanism is for count, sum, mean and histogram"
		if err := cli.Refuse(cmd, why, "central"); err != nil {
			return err
		}
	}
	values, err := f.values(t, m)
	if err != nil {
		return err
	}
	values, left := oneBatch(t, values, f.sample)
	doubts := doubt(t, m, uint64(len(values)))
	if err := doubts.refuse(f.unchecked); err != nil {
		return err
	}
	name := t.Protocol
	promised := m
	if f.central {
		name = "laplace"
		if m, err = planner.NewCentral(t, len(values)); err != nil {
			return err
		}
	}
	f.options.Confidences = confidences
	bar := cli.Progress("simulating", f.options.Repeats)
	f.options.Progress = func() { bar.Add(1) }
	located := newLocated(t, m, values)
	f.options.Visit = located.add
	out, err := f.options.Run(t, m, values)
	if err != nil {
		return flagError(err)
	}
	result := describe(t, out)
	result.Locations, result.ClippedShare = located.result(), clippedShare(t, values)
	result.Protocol, result.Fast, result.Unchecked = name, f.options.Fast, doubts
	result.Users, result.LeftOut, result.Sample = len(values), left, f.sample
	if result.Malicious = f.options.Malicious; result.Malicious > 0 {
		result.Attack = f.options.Attack
	}
	result.promise(t, promised)
	return cli.Print(cmd, result, func(w io.Writer) error { return printSimulation(w, t, result, out) })
}

// promise adds the guarantees of the task, worded as in the verifier's reports.
func (s *simulation) promise(t *task.Task, m protocols.Mechanism) {
	s.EpsilonNoHonest, s.LocalEpsilon = verifier.WorstCaseEpsilons(t, m)
	s.EpsilonHonest = verifier.EpsilonHonest(t, m)
	s.promises = []string{verifier.WorstCase(t, m), verifier.WithHonest(t, m)}
}

func (f *simulateFlags) check(cmd *cobra.Command) error {
	switch {
	case f.options.Repeats < 1 || f.options.Repeats > mostRepeats || f.table && f.options.Repeats < 100:
		return cli.Usagef("invalid repeat %d: want 1 to %d, 100 or more for a table", f.options.Repeats, mostRepeats)
	case f.table == (f.task != ""):
		return cli.Usagef("invalid flags: want either --task FILE or --table")
	case f.table:
		return cli.Refuse(cmd, "with --table: its tasks and values are fixed", append([]string{"input", "column", "sample",
			"malicious", "attack", "central", "unchecked"}, cli.TableFlags...)...)
	case !slices.Contains([]string{protocols.AttackMax, protocols.AttackOneCoordinate, protocols.AttackDropNoise},
		f.options.Attack):
		return cli.Usagef("invalid attack %q: want max, one-coordinate or drop-noise", f.options.Attack)
	}
	if f.central {
		if err := cli.Refuse(cmd, "with --central: its clients send their values as they are", "malicious",
			"attack"); err != nil {
			return err
		}
	}
	if f.options.Malicious == 0 {
		if err := cli.Refuse(cmd, "without --malicious: nobody attacks", "attack"); err != nil {
			return err
		}
	}
	if f.input == worst {
		return cli.Refuse(cmd, "without --input FILE: the worst-case value has no columns and no rows",
			append([]string{"column", "sample"}, cli.TableFlags...)...)
	}
	return nil
}

// flagError turns an error about a flag of simulate into a usage error. Other errors are about data.
func flagError(err error) error {
	var field *invalid.FieldError
	if errors.As(err, &field) && (field.Field == "malicious" || field.Field == "attack" || field.Field == "fast") {
		return cli.Usage(err)
	}
	return err
}

// worst is the value of --input that names no file: every client has the worst-case value.
const worst = "worst"

const mostRepeats = 1_000_000_000

// mostClients is the most clients of the input "worst". It bounds the memory to 24 bytes for each client, 2.4 GB.
const mostClients = 100_000_000

func isVector(t *task.Task) bool { return t.Query.Info().Shape == task.PerVector }

// values returns one value per client. It reads the rows of a file, with all columns for a vector. For the input
// "worst" it returns a full batch of the worst-case value.
func (f *simulateFlags) values(t *task.Task, m protocols.Mechanism) ([][]float64, error) {
	switch {
	case f.input == worst && t.Batch.Size > mostClients:
		return nil, invalid.Field("batch.size", fmt.Sprint(t.Batch.Size),
			fmt.Sprintf("at most %d clients to simulate", mostClients))
	case f.input == worst:
		return slices.Repeat([][]float64{m.Worst().Value}, int(t.Batch.Size)), nil
	case isVector(t):
		return table.ReadRows(f.input, f.format, 0)
	}
	values, err := table.Read(f.input, f.format, 0)
	rows := make([][]float64, len(values))
	for i := range values {
		rows[i] = values[i : i+1]
	}
	return rows, err
}

// oneBatch returns the clients of one batch, and the number of clients that do not fit in it. It takes the first n
// clients, or random ones if the seed is not 0. n is the task's batch size. With more clients, sums modulo q would wrap
// around, and the predictions would be wrong.
func oneBatch[T any](t *task.Task, clients []T, seed uint64) (batch []T, left int) {
	n := min(uint64(len(clients)), t.Batch.Size)
	if seed != 0 {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	}
	return clients[:n], len(clients) - int(n)
}

// clippedShare returns the share of the clients' numbers that the task clips, from 0 to 1. For a bounded vector it
// counts whole vectors.
func clippedShare(t *task.Task, values [][]float64) float64 {
	clipped, all := 0, 0
	for _, row := range values {
		c, of := planner.CountClipped(t, row)
		clipped, all = clipped+c, all+of
	}
	return float64(clipped) / float64(max(1, all))
}

func printLeftOut(w io.Writer, users, left int, sample uint64) {
	which := "the first %d of %d rows: a batch of this task has no more clients\n"
	if sample > 0 {
		which = "%d random ones of %d rows: a batch of this task has no more clients\n"
	}
	if left > 0 {
		fmt.Fprintf(w, which, users, users+left)
	}
}

func describe(t *task.Task, o *planner.Outcome) *simulation {
	s := &simulation{
		Estimate: o.Estimate, Truth: o.Truth, EmpiricalVariance: o.Variance, PredictedVariance: o.PredictedVariance,
		SamplingVariance: o.SamplingVariance,
		Bias:             make(verifier.Values, len(o.Truth)), RMSE: o.RMSE, PredictedRMSE: o.PredictedRMSE(),
		MessagesPerUser: o.MessagesPerUser, Repeats: o.Repeats, Coverage: o.Coverage[0].Entries,
		CoverageWide: o.Coverage[1].Entries, BandCoverage: o.Coverage[0].Band, RMSZ: o.Z,
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

func printSimulation(w io.Writer, t *task.Task, s *simulation, o *planner.Outcome) error {
	fmt.Fprintf(w, "%s of %d clients by %s, (%s, %s)-DP with %d honest, %s\n",
		t.Query, s.Users, s.Protocol, t.Claim.Epsilon, t.Claim.Delta, t.Batch.Min,
		plural(uint64(o.Repeats), "repetition"))
	printLeftOut(w, s.Users, s.LeftOut, s.Sample)
	if s.ClippedShare > 0 {
		fmt.Fprintf(w, "%.1f %% of the values were beyond the task's range and clipped to it\n", 100*s.ClippedShare)
	}
	s.Unchecked.print(w)
	if s.Malicious > 0 {
		fmt.Fprintf(w, "%d of them malicious (%s); the truth and the prediction assume that they are honest\n",
			s.Malicious, s.Attack)
	}
	if s.Fast {
		fmt.Fprintln(w, "fast: the aggregate of the honest clients was drawn, not their messages")
	}
	for _, text := range s.promises {
		if text != "" {
			fmt.Fprintln(w, text)
		}
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "\ttruth\testimate\tstd deviation\tpredicted")
	labels := verifier.Labels(t)
	for j := range o.Truth {
		name, deviation := string(t.Query), "-"
		if len(o.Truth) > 1 {
			name = verifier.EntryName(t) + " " + labels[j]
		}
		if o.Variance != nil {
			deviation = fmt.Sprintf("%.4g", math.Sqrt(o.Variance[j]))
		}
		fmt.Fprintf(tab, "%s\t%.6g\t%.6g\t%s\t%.4g\n", name, o.Truth[j], o.Estimate[j], deviation,
			math.Sqrt(o.PredictedVariance[j]))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	messages := fmt.Sprintf("%.3g messages", o.MessagesPerUser)
	if o.MessagesPerUser == 1 {
		messages = "1 message"
	}
	fmt.Fprintf(w, "\nroot mean square error %.4g, predicted %.4g; %s per client\n", o.RMSE, o.PredictedRMSE(), messages)
	fmt.Fprintf(w, "the truth was in %.2f %% of the 95 %% intervals", 100*o.Coverage[0].Mean())
	if len(o.Truth) > 1 {
		fmt.Fprintf(w, ", and all entries in %.2f %% of the bands", 100*s.BandCoverage)
	}
	fmt.Fprintln(w)
	if err := printLocations(w, s.Locations); err != nil || o.SamplingVariance == nil {
		return err
	}
	sampling, total := 0.0, 0.0
	for j, v := range o.SamplingVariance {
		sampling, total = sampling+v, total+o.PredictedVariance[j]
	}
	n := float64(len(o.Truth))
	_, err := fmt.Fprintf(w, "of this, %.4g because clients report a sample of their coordinates, and %.4g from "+
		"rounding and randomized response\n",
		math.Sqrt(sampling/n), math.Sqrt((total-sampling)/n))
	return err
}
