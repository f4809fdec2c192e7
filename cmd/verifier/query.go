package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/crosstab"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/task"
)

// queryFlags is the question of verifier query.
type queryFlags struct {
	dimensions, question, csv string
	by, versus                []string
	where, share              []string
	quantile                  string
	compare                   bool
}

// queried is what verifier query prints.
type queried struct {
	Reports uint64 `json:"reports"` // number of clients counted
	*crosstab.Answer
	Findings []finding.Finding `json:"findings"`
}

func queryCommand() *cobra.Command {
	var taskPath, keysPath string
	var r results
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query --task BUNDLE --keys FILE --dimensions FILE BATCH...",
		Short: "Answer questions about a table of several dimensions",
		Long: `Query reads the batches of a task whose categories are the cells of a table: combinations of a device, a page
and a loading time, say. It prints how many clients are in each group, which share of them has some value, and
quantiles, with intervals. Ask as often as you like: all answers come from the same noisy table.

` + aboutLedger[:strings.Index(aboutLedger, " --dry-run")] + `
Further questions cost nothing more. The default of --ledger is the folder of the task bundle. For a later
task of a stream, only --new-ledger begins a ledger.

The file --dimensions names the dimensions in the order in which pages number the cells: the last one's values
change first. Each has categories, or the edges of intervals (-.inf and .inf are open ends):

  dimensions:
    - {name: device, categories: [phone, desktop, tablet, other]}
    - {name: lcp, edges: [0, 1000, 2500, 4000, .inf], unit: ms}

A value of a dimension with edges is a range whose ends are edges, such as 0..2500, 4000.. or ..2500.

Each interval holds with 95 % confidence for itself. The bands, in the JSON, hold together over all rows. Of a
group, nothing is said but its number of clients unless that exceeds what noise alone reaches once in 1,000 times;
the intervals of its shares and quantiles allow for this choice. So they hold in small groups, too.

Shares and differences are of the clients that were counted. With --compare, the clients are a sample, as in an
experiment: the column p is the probability of so large a difference if the shares were equal, by chance and by
noise. It also says how many clients each group needs to show the difference in 80 of 100 experiments.

The exit status is 1 if a finding is a fault, as for 'verifier analyze'.`,
		Example: `  verifier query --task speed.bundle --keys verifier.keys --dimensions speed.yaml \
    --by device --share lcp=0..2500 --versus desktop --quantile lcp:0.75 batches/*.batch`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			shape, q, err := f.read(cmd)
			if err != nil {
				return err
			}
			open, v, err := r.opened(cmd, taskPath, keysPath, args)
			if err != nil {
				return err
			}
			return f.answer(cmd, v, open.Task, shape, q)
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cmd.Flags().StringVar(&keysPath, "keys", "", "the verifier's HPKE key file")
	cmd.Flags().StringVar(&f.dimensions, "dimensions", "", "the table's dimensions, in YAML or JSON")
	cmd.Flags().StringSliceVar(&f.by, "by", nil, "group by these dimensions")
	cmd.Flags().StringArrayVar(&f.where, "where", nil, "count only the cells with DIMENSION=VALUE; several values of a "+
		"dimension add up")
	cmd.Flags().StringArrayVar(&f.share, "share", nil, "show which share of each group has DIMENSION=VALUE")
	cmd.Flags().StringSliceVar(&f.versus, "versus", nil, "show each share less this group's: its values of --by")
	cmd.Flags().BoolVar(&f.compare, "compare", false, "with --versus: test whether the shares differ, as in an "+
		"experiment")
	cmd.Flags().StringVar(&f.quantile, "quantile", "", "show a quantile of each group: DIMENSION:P, such as lcp:0.75")
	cmd.Flags().StringVar(&f.question, "question", "", "read the question from this JSON file, in place of flags")
	cmd.Flags().StringVar(&f.csv, "csv", "", "also write the answer to this file")
	r.ledgerFlags(cmd)
	cli.Require(cmd, "task", "keys", "dimensions")
	return cmd
}

// read reads the dimensions and the question.
func (f *queryFlags) read(cmd *cobra.Command) (*crosstab.Shape, crosstab.Question, error) {
	var q crosstab.Question
	in, err := os.Open(f.dimensions)
	if err != nil {
		return nil, q, fmt.Errorf("couldn't read the dimensions: %w", err)
	}
	defer in.Close()
	shape, err := crosstab.ReadShape(in)
	if err != nil {
		return nil, q, fmt.Errorf("%s: %w", f.dimensions, err)
	}
	if f.question != "" {
		if err := cli.Refuse(cmd, "with --question, which has the whole question", "by", "where", "share", "versus",
			"compare", "quantile"); err != nil {
			return nil, q, err
		}
		q, err = readQuestion(f.question)
		return shape, q, err
	}
	q.By, q.Versus, q.Compare = f.by, f.versus, f.compare
	if q.Where, err = whereOf("where", f.where); err != nil {
		return nil, q, err
	}
	if q.Share, err = whereOf("share", f.share); err != nil {
		return nil, q, err
	}
	q.Quantile, err = f.quantileOf()
	return shape, q, err
}

// maxQuestion is the largest size of a question's file, in bytes.
const maxQuestion = 1 << 20

func readQuestion(path string) (q crosstab.Question, err error) {
	in, err := os.Open(path)
	if err != nil {
		return q, fmt.Errorf("couldn't read the question: %w", err)
	}
	defer in.Close()
	d := json.NewDecoder(io.LimitReader(in, maxQuestion))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("couldn't read the question in %s: %w", path, err)
	}
	return q, nil
}

// whereOf reads texts of the form DIMENSION=VALUE.
func whereOf(flag string, texts []string) (crosstab.Where, error) {
	where := crosstab.Where{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.Usagef("invalid --%s %q: want DIMENSION=VALUE", flag, text)
		}
		where[name] = append(where[name], value)
	}
	return where, nil
}

func (f *queryFlags) quantileOf() (*crosstab.Quantile, error) {
	if f.quantile == "" {
		return nil, nil
	}
	at := strings.LastIndex(f.quantile, ":")
	if at < 0 {
		return nil, cli.Usagef("invalid --quantile %q: want DIMENSION:P, such as lcp:0.75", f.quantile)
	}
	p, err := strconv.ParseFloat(f.quantile[at+1:], 64)
	if err != nil {
		return nil, cli.Usagef("invalid --quantile %q: want a probability after the colon", f.quantile)
	}
	return &crosstab.Quantile{Dimension: f.quantile[:at], P: p}, nil
}

// answer prints the answer over all batches added. Then it returns an error if a finding is a fault.
func (f *queryFlags) answer(cmd *cobra.Command, v *verifier.Verifier, t *task.Task, shape *crosstab.Shape,
	q crosstab.Question) error {
	made, err := v.Report() // charges the epochs
	if err != nil {
		return err
	}
	if !made.Usable {
		return errors.Join(fmt.Errorf("there is no answer: %s", made.UnusableBecause), finding.Faults(v.Findings()))
	}
	total, err := v.Total()
	if err != nil {
		return err
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	table, err := crosstab.New(t, m, total)
	if err != nil {
		return err
	}
	answer, err := crosstab.Ask(table, shape, q, verifier.Confidence)
	if err != nil {
		return err
	}
	out := queried{total.Reports(), answer, v.Findings()}
	if err := writeFile(f.csv, out.writeCSV); err != nil {
		return err
	}
	if err := cli.Print(cmd, out, out.print); err != nil {
		return err
	}
	return finding.Faults(out.Findings)
}

func (q queried) print(w io.Writer) error {
	fmt.Fprintf(w, "%d clients; each interval holds with %.0f %% confidence for itself\n\n", q.Reports, 100*q.Confidence)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, strings.Join(q.columns(func(name string) []string { return []string{name} }), "\t"))
	for _, r := range q.Rows {
		cells := append([]string{}, r.Group...)
		cells = append(cells, fmt.Sprintf("%.0f (%.0f to %.0f)", r.Clients.Estimate, r.Clients.Interval[0],
			r.Clients.Interval[1]))
		if len(q.Question.Share) > 0 {
			cells = append(cells, percent(r.Share))
		}
		if len(q.Question.Versus) > 0 {
			cells = append(cells, percent(r.Difference))
		}
		if q.Question.Compare {
			cells = append(cells, comparisonText(r.Comparison))
		}
		if q.Question.Quantile != nil {
			cells = append(cells, quantileText(r.Quantile))
		}
		fmt.Fprintln(tab, strings.Join(cells, "\t"))
	}
	return tab.Flush()
}

// columns returns the names of the answer's columns. each returns those of one figure.
func (q queried) columns(each func(figure string) []string) []string {
	names := append([]string{}, q.Question.By...)
	names = append(names, each("clients")...)
	if len(q.Question.Share) > 0 {
		names = append(names, each("share")...)
	}
	if len(q.Question.Versus) > 0 {
		names = append(names, each("difference")...)
	}
	if q.Question.Compare {
		names = append(names, "p")
	}
	if q.Question.Quantile != nil {
		names = append(names, each("quantile")...)
	}
	return names
}

func percent(f *crosstab.Banded) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %% (%.1f to %.1f)", 100*f.Estimate, 100*f.Interval[0], 100*f.Interval[1])
}

// comparisonText returns the p-value, and the clients that each group needs to show a difference.
func comparisonText(c *crosstab.Comparison) string {
	if c == nil {
		return "–"
	}
	if c.NeededPer == nil {
		return fmt.Sprintf("%.3g", c.P)
	}
	return fmt.Sprintf("%.3g (%s in each group would show it)", c.P, display.Number(*c.NeededPer))
}

func quantileText(q *crosstab.NumberRange) string {
	if q == nil {
		return "–"
	}
	text := func(x *float64) string {
		if x == nil {
			return "open"
		}
		return display.Number(*x)
	}
	return fmt.Sprintf("%s (%s to %s)", text(q.Estimate), text(q.Interval[0]), text(q.Interval[1]))
}

// writeCSV writes one line for each group. Numbers have all digits. A cell without a number is empty.
func (q queried) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	names := q.columns(func(name string) []string {
		return []string{name, name + "_low", name + "_high", name + "_band_low", name + "_band_high"}
	})
	for i, name := range q.Question.By {
		names[i] = csvText(name)
	}
	out.Write(names)
	for _, r := range q.Rows {
		var cells []string
		for _, value := range r.Group {
			cells = append(cells, csvText(value))
		}
		cells = append(cells, bandedCells(&r.Clients)...)
		if len(q.Question.Share) > 0 {
			cells = append(cells, bandedCells(r.Share)...)
		}
		if len(q.Question.Versus) > 0 {
			cells = append(cells, bandedCells(r.Difference)...)
		}
		if q.Question.Compare {
			p := ""
			if r.Comparison != nil {
				p = numberCells(&r.Comparison.P)[0]
			}
			cells = append(cells, p)
		}
		if q.Question.Quantile != nil {
			n := r.Quantile
			if n == nil {
				n = &crosstab.NumberRange{}
			}
			cells = append(cells, numberCells(n.Estimate, n.Interval[0], n.Interval[1], n.Band[0], n.Band[1])...)
		}
		out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// csvText returns a name for a cell of a CSV file, quoted if a spreadsheet could take it for a formula.
func csvText(name string) string {
	if strings.IndexAny(name, "=+-@") == 0 || strings.Contains(name, ";") {
		return display.Cell(name)
	}
	return name
}

func bandedCells(f *crosstab.Banded) []string {
	if f == nil {
		return make([]string, 5)
	}
	return numberCells(&f.Estimate, &f.Interval[0], &f.Interval[1], &f.Band[0], &f.Band[1])
}

func numberCells(numbers ...*float64) (cells []string) {
	for _, x := range numbers {
		if x == nil {
			cells = append(cells, "")
			continue
		}
		cells = append(cells, strconv.FormatFloat(*x, 'g', -1, 64))
	}
	return cells
}
