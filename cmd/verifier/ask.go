package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/task"
)

type asked struct {
	Reports    uint64      `json:"reports"`    // number of clients counted
	Confidence float64     `json:"confidence"` // confidence that all intervals of texts hold together
	Texts      []askedText `json:"texts"`
	// Clients whose text a search of the batches does not find, whether it was asked for or not.
	Rest     askedRest         `json:"rest"`
	Findings []finding.Finding `json:"findings"`
}

type askedRest struct {
	Clients  *float64    `json:"clients"`  // null if there is no interval
	Interval *[2]float64 `json:"interval"` // null if the batches say too little
}

type askedText struct {
	Text     string      `json:"text"`
	Clients  *float64    `json:"clients"`  // null if there is no interval
	Interval *[2]float64 `json:"interval"` // null if the batches say too little about the text
}

func askCommand() *cobra.Command {
	var taskPath, keysPath string
	var r results
	cmd := &cobra.Command{
		Use:   "ask --task BUNDLE --keys FILE TEXTS BATCH...",
		Short: "Count given texts in the batches of a task for strings",
		Long: `Ask reads a list of texts, one in a line, and estimates from the batches of a task for strings how
many clients have each. It cuts a text where the clients cut theirs. Texts must be in Unicode normal form C,
which the SDK uses.

` + aboutLedger[:strings.Index(aboutLedger, " --dry-run")] + `
Asking again, even for other texts, costs nothing more. The default of --ledger is the folder of the task
bundle. For a later task of a stream, only --new-ledger begins a ledger.

All intervals hold together with 95 % confidence, so a longer list has wider intervals. They describe the
clients whose reports were counted. Other clients' texts can fall in the cells of a text. So ask first finds
the frequent texts and leaves out their cells, and each interval allows for the texts that are too rare to be
found. A text whose cells are all taken has neither an estimate nor an interval. The last line says how many clients
have a text that is not found; its interval holds by itself.

Fix the list before you see any counts. The confidence is for one list, and it is over tasks, because each task
has its own hashes: if an interval misses, it is likely to miss in other batches of the same task. Only that a
text without clients is rarely counted is proved, the rest is checked by simulation. Clients can choose texts
that share cells with yours, because the hash is public. The intervals do not cover that.

The exit status is 1 if a finding is a fault, as for 'verifier analyze'.`,
		Example: "  verifier ask --task links.bundle --keys verifier.keys paths.txt batches/*.batch",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(2)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := table.ReadDistinct(args[0], display.Terminal(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			open, v, err := r.opened(cmd, taskPath, keysPath, args[1:])
			if err != nil {
				return err
			}
			return ask(cmd, v, open.Task, list)
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cmd.Flags().StringVar(&keysPath, "keys", "", "the verifier's HPKE key file")
	r.ledgerFlags(cmd)
	cli.Require(cmd, "task", "keys")
	return cmd
}

// ask prints how many clients have each text, over all batches added. Then it returns an error if a finding is a fault.
func ask(cmd *cobra.Command, v *verifier.Verifier, t *task.Task, list []string) error {
	if _, err := v.Report(); err != nil { // charges the epochs
		return err
	}
	total, err := v.Total()
	if err != nil {
		return err
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	count := protocols.CapabilitiesOf(m).Ask
	if count == nil {
		return invalid.Field("task", "for query "+string(t.Query), "a task for strings")
	}
	if total.Reports() == 0 {
		return errors.Join(errors.New("no batch was released: there are no counts"), finding.Faults(v.Findings()))
	}
	counts, rest, err := count(total, list, verifier.Confidence)
	if err != nil {
		return err
	}
	out := asked{Reports: total.Reports(), Confidence: verifier.Confidence, Texts: []askedText{},
		Rest: askedRest{rest.Estimate(), rest.Interval()}, Findings: v.Findings()}
	for _, c := range counts {
		out.Texts = append(out.Texts, askedText{c.Text, c.Estimate(), c.Interval()})
	}
	if err := cli.Print(cmd, out, out.print); err != nil {
		return err
	}
	return finding.Faults(out.Findings)
}

func (a asked) print(w io.Writer) error {
	fmt.Fprintf(w, "%d clients; all intervals of texts hold together with %.0f %% confidence\n\n", a.Reports, 100*a.Confidence)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "text\tclients\tinterval")
	for _, t := range a.Texts {
		if t.Interval == nil {
			fmt.Fprintf(tab, "%q\t–\tno interval\n", t.Text)
			continue
		}
		fmt.Fprintf(tab, "%q\t%.0f\t%s\n", t.Text, *t.Clients, between(t.Interval))
	}
	if err := tab.Flush(); err != nil || a.Rest.Interval == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nAbout %.0f clients (%s) have a text that a search does not find.\n", *a.Rest.Clients,
		between(a.Rest.Interval))
	return err
}

// between prints an interval.
func between(interval *[2]float64) string {
	return fmt.Sprintf("%.0f to %.0f", interval[0], interval[1])
}
