package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// planRow describes one way to reach the goal of `doona plan`. Its numbers are null if the way is impossible.
type planRow struct {
	Protocol           string             `json:"protocol"`
	Noise              planner.Noise      `json:"noise"`
	Padding            task.Padding       `json:"padding"`
	Params             map[string]string  `json:"params"`
	Epsilon            *float64           `json:"epsilon"` // Of one epoch.
	Delta              *float64           `json:"delta"`
	Devices            *groupGuarantee    `json:"devices,omitempty"` // For a person with --devices devices.
	EpsilonNoHonest    *float64           `json:"epsilon_no_honest"` // ε′; null if no guarantee is left.
	RMSE               *float64           `json:"rmse"`
	IntervalWidth      *float64           `json:"interval_width"`
	CentralRatio       *float64           `json:"central_ratio"`
	MessagesPerUser    *float64           `json:"messages_per_user"`
	Slots              *uint64            `json:"slots"` // A client's slots in one lane; null under padding none.
	Lanes              *uint64            `json:"lanes"`
	BytesPerUser       *float64           `json:"bytes_per_user"`
	Dummies            *float64           `json:"dummies"`
	LocalEpsilon       *float64           `json:"local_epsilon"` // ε₀; null if no guarantee is left.
	OneMaliciousClient *float64           `json:"one_malicious_client"`
	FoundDownTo        *float64           `json:"found_down_to,omitempty"` // Clients a listed text needs; for strings.
	NeedsHonest        string             `json:"needs_honest,omitempty"`
	ServerSeconds      map[string]float64 `json:"server_seconds,omitempty"`
	// Estimated cost of a full batch for each party.
	BatchNeeds map[string]handover.Need `json:"batch_needs,omitempty"`
	Reason     string                   `json:"reason,omitempty"`
	Why        string                   `json:"why,omitempty"` // Why the way is impossible, and what would help.

	batch string // Cost of a batch, in words.
}

// planResult is what `doona plan` prints.
type planResult struct {
	Users uint64    `json:"users"`
	Plans []planRow `json:"plans"`
	// Cost of the default quota of networks for the first row; null if that row is impossible.
	Quota *planner.QuotaCost `json:"quota"`
}

// planFlags are the flags of `doona plan`.
type planFlags struct {
	goal  planner.Goal
	asked queryFlags
	solve string
	width float64
	pick  int
	out   string
	set   string
	plot  string
	table bool

	explain bool

	devices deviceFlag
}

const aboutPlan = `Plan calibrates every protocol that answers a query, with every padding, and with noise by the clients
or by the relays. It prints what each way gives and costs. The first row is recommended: noise by relays,
which needs one honest relay and no honest client, unless its error exceeds twice the least. The other
possible ways follow by rising error, and then the impossible ones with what would make them possible.
Plan writes nothing without --pick.

rmse        root mean square error for the worst-case input, in the query's units; of an answer with
            several entries, the root mean square over the entries
interval    width of the widest 95 % interval of an entry; of a single entry 3.92 times rmse
central     rmse relative to the best mechanism of one curator who sees all values
messages    mean number of a client's messages, without covers; slots and lanes are what it sends
bytes       size of a client's report, through --hops relays
dummies     mean number that every relay adds to every batch
no honest   ε′, which holds if no other client is honest; '-': no protection
collude     ε₀, which holds if all relays collude with the verifier
one bad     the most that one malicious client moves an entry of the answer

The guarantee is for one report. Plan also prints the guarantee of a person with k --devices that report
in an epoch: (k·ε, δ·(e^(kε)−1)/(e^ε−1)), see docs/proofs/group.md.

For strings the figures are of the count of a text that is just frequent enough to be listed. Each row says
how many clients that takes.

Without a total, rows are of one epoch. Ways with the same (ε, δ) differ in what many epochs cost together
('doona compose'). For many epochs give --total-epsilon, --total-delta and --epochs. With --cap 56/365 a browser
makes at most 56 reports in any 365 epochs, and the total covers only these: the noise of one year falls by 2.55.

--users is the number of reports of one batch. --solve users finds it: the fewest for which a 95 % interval
is at most --interval-width wide. Without a width, the fewest for which any way is possible.

Limits (--max-slots, --max-messages, --max-dummies, --local-epsilon) exclude what exceeds them. With a
limit, free parameters are those of the least error within it. Without, they are the cheapest ones whose
error is within 20 % of the least.

--pick I --out FILE writes row I as a task without parties, as 'doona task new' does. The exit status is 1
if no row is possible.

--set FILE plans several queries that the same visitors answer, under one total. A query of weight 2 has an
interval of about half the width of one of weight 1. Instead of weights, queries may have shares of the total:
the error is about √(reports/share). With days in place of epochs, each query says per day, week or month: then
as many epochs count as can begin in these days: 365, 53 or 12 in a year. An epoch per month must have 31 days at
least. Each query takes its first row. --out DIR writes a task for each. --explain says for each query which
kinds of noise and which other ways lost, and by how much. --plot FILE.svg draws the errors against the shares.
The file is JSON; queries take the flags' options and limits under the same names:

  {"users": 5000, "epochs": 30, "total_epsilon": 8, "total_delta": 1e-5, "honest": 0.9, "hops": 2,
   "queries": [{"name": "lcp", "query": "histogram", "range": "0,6000", "bins": 12, "weight": 2,
                "max_slots": 8},
               {"name": "signed-up", "query": "count", "noise": "relays"}]}

  {"users": 5000, "days": 365, "total_epsilon": 10, "total_delta": 1e-5,
   "queries": [{"name": "page", "query": "histogram", "labels": true, "bins": 251, "noise": "relays",
                "share": 60, "per": "day", "cap": "56/365"},
               {"name": "country", "query": "histogram", "labels": true, "bins": 60, "noise": "relays",
                "share": 40, "per": "month"}]}

--table plans the examples of every protocol, for a thousand to ten million users, at ε = 1, δ = 1e-6 and
90 % honest clients. It prints a client's slots, its expected messages, the bytes of a report through two
relays, and what a batch costs (docs/costs.md). Sums are of numbers from 0 to 1, or of whole numbers from
0 to 16. Vectors have 100 coordinates, vector means 16 (2 for vectorgrid). Expected messages of rappor and
vectormean are means of 5,000 simulated clients with the worst-case value.`

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan --query Q --users N --epsilon E --delta D",
		Short: "Compare all ways to ask a query: error, cost and whom each trusts",
		Long:  aboutPlan,
		Example: `  doona plan --query mean --range 0,180 --users 1000000 --epsilon 1 --delta 1e-8
  doona plan --query count --users 50 --epsilon 1 --delta 1e-6 --pick 1 --out t.json
  doona plan --query sum --total-epsilon 5 --total-delta 1e-5 --epochs 30 --users 100000
  doona plan --query histogram --bins 64 --total-epsilon 2 --total-delta 1e-6 --epochs 365 --cap 56/365 --users 5000
  doona plan --query histogram --bins 100 --epsilon .5 --delta 1e-6 --solve users --interval-width 500
  doona plan --set site.json --out tasks
  doona plan --set site.json --explain --plot shares.svg
  doona plan --table --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags, g := cmd.Flags(), &f.goal
	f.asked.add(cmd, &g.Query, "count, sum, mean, histogram, vector, vectormean or strings")
	flags.BoolVar(&g.Sparse, "sparse", false, "vectors have at most one coordinate that is not 0")
	flags.Uint64Var(&g.Batch, "users", 0, "n, reports shuffled together, 1 to 4294967295")
	flags.Uint64Var(&g.Epochs, "epochs", 1, "number of epochs of a total, 1 to 65536")
	flags.IntVar(&g.Hops, "hops", planner.DefaultRelays, "relays on the way, 1 to 8")
	flags.StringVar((*string)(&g.Noise), "noise", string(planner.NoiseAny), "clients, relays or any")
	flags.Uint64Var(&g.MaxSlots, "max-slots", 0, "most slots of a client, in all lanes; 0 for no limit")
	flags.Float64Var(&g.MaxMessages, "max-messages", 0, "most messages of a client on average; 0 for no limit")
	flags.Float64Var(&g.MaxDummies, "max-dummies", 0, "most dummies per relay and batch on average; 0 for no limit")
	flags.Float64Var(&g.LeastLocal, "local-epsilon", 0,
		"ε₀ that must remain if all relays collude, in (0, 64]; 0: none")
	flags.Uint64Var(&g.Batches, "batches", defaultBatches,
		"of tasks whose relays add noise: the most batches of an epoch, 0 for no bound")
	flags.StringVar(&f.solve, "solve", "", "users: find the fewest")
	flags.Float64Var(&f.width, "interval-width", 0, "with --solve users: how wide a 95 % interval may be, above 0")
	flags.IntVar(&f.pick, "pick", 0, "row to write, from 1; with --out")
	flags.StringVar(&f.out, "out", "", "file to write the picked row to; with --set a folder for its tasks")
	flags.StringVar(&f.set, "set", "", "file of several queries with one total budget")
	flags.BoolVar(&f.explain, "explain", false, "with --set: say why each query gets its law and its way")
	flags.StringVar(&f.plot, "plot", "", "with --set: write a chart of error against share to this SVG file")
	f.devices.add(cmd)
	flags.BoolVar(&f.table, "table", false, "print the cost of reports for every protocol, as in docs/costs.md")
	return cmd
}

// defaultBatches is the default of --batches: the most batches of an epoch if relays add noise.
const defaultBatches = 100

// ofOneQuery are the flags that --set forbids, because the set's file gives their values.
var ofOneQuery = []string{"query", "range", "no-clip", "bins", "labels", "dim", "length", "sparse",
	"users", "honest", "epsilon",
	"delta", "total-epsilon", "total-delta", "epochs", "cap", "pace", "events", "default", "hops", "noise", "max-slots",
	"max-messages", "max-dummies",
	"local-epsilon", "batches", "solve", "interval-width", "pick"}

// ofNoQuery are the flags that --table forbids, because it does not use them.
var ofNoQuery = append([]string{"set", "out", "devices", "explain", "plot"}, ofOneQuery...)

func (f *planFlags) run(cmd *cobra.Command) error {
	if f.table {
		if err := cli.Refuse(cmd, "with --table, which has its own queries", ofNoQuery...); err != nil {
			return err
		}
		return f.printTable(cmd)
	}
	if f.set != "" {
		if err := cli.Refuse(cmd, "with --set: its file sets it", ofOneQuery...); err != nil {
			return err
		}
		return f.runSet(cmd)
	}
	if err := f.check(cmd); err != nil {
		return err
	}
	err := f.asked.read()
	if err != nil {
		return err
	}
	g := &f.goal
	g.Name = "task"
	var ways []planner.Way
	if f.solve != "" {
		bar := cli.Progress("calibrating", -1) // The number of plans is not known before.
		g.Batch, ways, err = planner.SolveUsers(*g, f.width, func(int) { bar.Add(1) })
		bar.Finish()
		if err != nil {
			return cli.FlagError(err)
		}
	} else if ways, err = planWithProgress(*g); err != nil {
		return cli.FlagError(err)
	}
	result := planResult{Users: g.Batch}
	for i := range ways {
		row, err := newPlanRow(*g, &ways[i], planner.LeastError(ways))
		if err != nil {
			return err
		}
		result.Plans = append(result.Plans, row)
	}
	if err := f.devices.setDevices(result.Plans); err != nil {
		return err
	}
	if ways[0].Why == nil {
		cost := ways[0].QuotaCost()
		result.Quota = &cost
	}
	if f.pick > 0 {
		if err := f.write(ways); err != nil {
			return err
		}
	}
	if err := cli.Print(cmd, result, func(w io.Writer) error { return printPlan(w, *g, &result) }); err != nil {
		return err
	}
	if ways[0].Why != nil {
		return errors.New("no protocol reaches this goal: see the reason in each row")
	}
	return nil
}

func planWithProgress(g planner.Goal) ([]planner.Way, error) {
	bar := cli.Progress("calibrating", -1)
	defer bar.Finish()
	return planner.Plan(g, func(of int) {
		bar.SetTotal(int64(of))
		bar.Add(1)
	})
}

func (f *planFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if !given("query") {
		return cli.Usagef("missing flag --query, or --set")
	}
	if err := cmp.Or(f.asked.check(cmd), f.devices.check()); err != nil {
		return err
	}
	if err := cli.Refuse(cmd, "without --set", "explain", "plot"); err != nil {
		return err
	}
	if !given("total-epsilon") {
		if err := cli.Refuse(cmd, "without --total-epsilon: each epoch has its own ε", "epochs", "cap",
			"pace", "events"); err != nil {
			return err
		}
	}
	switch {
	case f.goal.Epochs < 1 || f.goal.Epochs > mostEpochs:
		return cli.Usagef("invalid epochs %d: want 1 to %d", f.goal.Epochs, mostEpochs)
	case f.solve != "" && f.solve != "users":
		return cli.Usagef("invalid solve %q: want users", f.solve)
	case f.solve == "" && !given("users"):
		return cli.Usagef("missing flag --users, or --solve users")
	case given("interval-width") && !(f.width > 0 && !math.IsInf(f.width, 1)):
		return cli.Usagef("invalid interval-width %v: want a number above 0", f.width)
	case given("pick") != given("out"):
		return cli.Usagef("missing flag --pick or --out: a row is written with both")
	case given("pick") && f.pick < 1:
		return cli.Usagef("invalid pick %d: want a row's number, from 1", f.pick)
	case f.solve != "":
		return cli.Refuse(cmd, "with --solve users", "users")
	}
	return cli.Refuse(cmd, "without --solve users", "interval-width")
}

// write writes the task of the picked row.
func (f *planFlags) write(ways []planner.Way) error {
	if f.pick > len(ways) {
		return cli.Usagef("invalid pick %d: want 1 to %d", f.pick, len(ways))
	}
	w := ways[f.pick-1]
	if w.Why != nil {
		return cli.Usagef("invalid pick %d: %s is impossible: %v", f.pick, w.Protocol, w.Why)
	}
	return writeJSON(f.out, w.Task)
}

// newPlanRow describes a way in numbers and words, and compares it with least, the way with the least error.
func newPlanRow(g planner.Goal, w, least *planner.Way) (planRow, error) {
	r := planRow{Protocol: w.Protocol, Noise: w.Noise, Padding: w.Padding, Params: map[string]string{}}
	if w.Why != nil {
		r.Why = w.Why.Error()
		return r, nil
	}
	t := w.Task
	for _, p := range t.Params {
		r.Params[p.Key] = p.Value.String()
	}
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	r.Epsilon, r.Delta = &eps, &delta
	r.RMSE, r.IntervalWidth, r.CentralRatio, r.MessagesPerUser = &w.RMSE, &w.Width, &w.Central, &w.Messages
	r.BytesPerUser, r.Dummies, r.OneMaliciousClient = &w.Bytes, &w.Dummies, &w.Shift
	if r.Lanes = &t.Slots.Lanes; t.Slots.Padding == task.PaddingFull {
		r.Slots = &t.Slots.PerLane
	}
	if w.FoundDownTo > 0 {
		r.FoundDownTo = &w.FoundDownTo
	}
	r.EpsilonNoHonest, r.LocalEpsilon = verifier.WorstCaseEpsilons(t, w.Mechanism)
	needs, _, err := verifier.Needs(t)
	r.NeedsHonest = strings.Replace(needs, "n_min", strconv.FormatUint(t.Batch.Min, 10), 1)
	r.ServerSeconds, r.BatchNeeds, r.Reason = w.ServerSeconds(), w.ByParty(), reason(r, w, least)
	r.batch = "A batch takes up to " + handover.Worst(w.Needs).String() + "."
	return r, err
}

// littleLeft is the ε₀ above which a report practically reveals its value: with ε₀ = 10 the odds may be e¹⁰, 22,000 to
// one.
const littleLeft = 10

// reason says in a sentence what speaks for a way and against it.
func reason(r planRow, w, least *planner.Way) string {
	var out []string
	if w == least {
		out = append(out, "The least error of all")
	} else {
		out = append(out, fmt.Sprintf("%s times the least error at %s times its bytes", display.Number(w.RMSE/least.RMSE),
			display.Number(w.Bytes/least.Bytes)))
	}
	switch {
	case r.FoundDownTo != nil:
		out = append(out, fmt.Sprintf("lists texts that about %s clients or more have, or more clients where many "+
			"begin alike", display.Number(*r.FoundDownTo)))
	case w.Lists:
		out = append(out, "can count given texts, but list none: the batch has too few clients")
	}
	switch {
	case w.Noise == planner.NoiseRelays && r.LocalEpsilon == nil:
		out = append(out, "needs one honest relay and no honest client; all relays together see exact answers")
	case w.Noise == planner.NoiseRelays:
		out = append(out, "needs no honest client, and keeps some privacy if all relays collude")
	case r.LocalEpsilon == nil:
		out = append(out, "no privacy remains if all relays collude, or nobody else is honest")
	case *r.LocalEpsilon > littleLeft:
		out = append(out, fmt.Sprintf("practically no privacy remains (ε₀ = %s) if all relays collude, or nobody else is honest",
			decimal.Up(*r.LocalEpsilon, 3)))
	default:
		out = append(out, "some privacy remains if all relays collude, or nobody else is honest")
	}
	if w.Padding == task.PaddingNone {
		out = append(out, "the number of a client's messages shows the first relay its noise")
	}
	return strings.Join(out, "; ") + "."
}

func printPlan(w io.Writer, g planner.Goal, result *planResult) error {
	rows := result.Plans
	fmt.Fprintf(w, "%s of %s users through %d relays\n\n", g.Query.Query, display.Number(float64(g.Batch)), g.Hops)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "\tprotocol\tnoise\tpadding\trmse\tinterval\tcentral\tmessages\tslots × lanes\tbytes\tdummies\t"+
		"no honest\tcollude\tone bad")
	for i, r := range rows {
		if r.Why != "" {
			continue
		}
		slots := "varies"
		if r.Slots != nil {
			slots = strconv.FormatUint(*r.Slots, 10)
		}
		fmt.Fprintf(tab, "%d\t%s\t%s\t%s\t%.4g\t%.4g\t%.3g\t%.4g\t%s × %d\t%.0f\t%.4g\t%s\t%s\t%.3g\n", i+1, r.Protocol,
			r.Noise, r.Padding, *r.RMSE, *r.IntervalWidth, *r.CentralRatio, *r.MessagesPerUser, slots, *r.Lanes,
			*r.BytesPerUser, *r.Dummies, orDash(r.EpsilonNoHonest), orDash(r.LocalEpsilon), *r.OneMaliciousClient)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if result.Quota != nil {
		printQuota(w, *result.Quota)
		fmt.Fprint(w, "These figures are of row 1 with the default quota: see 'task new --quota' and --issuer.\n\n")
	}
	for i, r := range rows {
		text := r.Reason + " The guarantee holds provided " + r.NeedsHonest + ". " + r.batch
		if r.Why != "" {
			text = "impossible: " + strings.TrimPrefix(r.Why, "invalid ")
		}
		name := r.Protocol
		if r.Padding != "" {
			name += ", padding " + string(r.Padding)
		}
		if _, err := fmt.Fprintf(w, "%d  %s: %s\n", i+1, name, text); err != nil {
			return err
		}
	}
	return printDevices(w, rows)
}

func orDash(x *float64) string {
	if x == nil {
		return "-"
	}
	return decimal.Up(*x, 3)
}
