package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func setCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FOLDER",
		Short: "Check a set's signature, tables and total",
		Long: `Check does what a browser does before it sends a submission: it checks the set's signature, that its
tables may be in one set, each table's claim, and the total of all tables together. It prints the tables with
their clocks, limits and errors. FOLDER is what 'doona set new' wrote, or its file set.bundle. Of
several renewals it prints the last, after it has checked that each may follow.

If the total is not proven, Check prints the reason and exits with status 1.`,
		Example: `  doona set check site`,
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readRenewals(args[0])
			if err != nil {
				return err
			}
			return printSetFolder(cmd, all[len(all)-1])
		},
	}
}

// setSummary is what `doona set new` and `doona set check` print.
type setSummary struct {
	ID      string         `json:"id"`
	Root    string         `json:"root"` // The id that pages name: of the set at position 0.
	Name    string         `json:"name"`
	Owner   string         `json:"owner"`
	Trust   string         `json:"trust"`
	Epsilon *float64       `json:"epsilon"` // Claimed total; null with trust trial.
	Delta   *float64       `json:"delta"`
	Days    uint64         `json:"days"`
	Derived *float64       `json:"derived_delta"` // δ of all tables composed, at the claimed ε; null with trust trial.
	Alone   *float64       `json:"epsilon_sum"`   // For comparison: the sum over tables, each composed by itself.
	From    string         `json:"from"`          // First day.
	Until   string         `json:"until"`         // End of the last.
	Bytes   int            `json:"bytes"`         // Of a submission.
	Tables  []tableSummary `json:"tables"`
}

type tableSummary struct {
	Name   string   `json:"name"`
	Task   string   `json:"task"`
	Bare   bool     `json:"bare"`
	Epochs string   `json:"epochs"` // Length of an epoch, and how many.
	From   string   `json:"from"`
	Limit  string   `json:"limit"` // Cap, pace and events.
	Copies uint64   `json:"copies"`
	Cells  uint64   `json:"cells"`
	Error  *float64 `json:"rmse"` // Of a cell in one batch; null for a bare table.
}

func printSetFolder(cmd *cobra.Command, f *setFolder) error {
	s, err := summarizeSet(f)
	if err != nil {
		return err
	}
	return cli.Print(cmd, s, s.print)
}

func summarizeSet(f *setFolder) (*setSummary, error) {
	set := f.set
	days := set.Tasks[0].Epochs
	s := &setSummary{ID: set.ID.String(), Root: set.RootID().String(), Name: set.Name,
		Owner: taskfile.FormatKey(set.Owner), Trust: "two", Days: set.Total.Days, From: dayOf(days.Start),
		Until: dayOf(days.Over())}
	layouts, err := set.Layouts()
	if err != nil {
		return nil, err
	}
	s.Bytes = onion.SetBody(layouts)
	copies := set.Copies()
	var laws []func() (*compose.Law, error)
	alone, valued := 0.0, 0
	for _, table := range set.Tables {
		if !table.Bare {
			valued++
		}
	}
	for i, t := range set.Tasks {
		m, err := registry.Open(t)
		if err == nil {
			err = m.CheckClaim()
		}
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", set.Tables[i].Name, err)
		}
		laws = append(laws, m.Law)
		row := tableSummary{Name: set.Tables[i].Name, Task: set.Tables[i].Task.String(), Bare: set.Tables[i].Bare,
			Epochs: epochsText(t.Epochs), From: dayOf(t.Epochs.Start), Limit: limitText(t), Copies: copies[i],
			Cells: t.Noise.Cells}
		if !row.Bare {
			rmse, err := planner.WorstRMSE(t, m)
			if err != nil {
				return nil, err
			}
			row.Error = &rmse
			one, err := aloneEpsilon(m.Law, copies[i], set.Total.Delta.Value()/float64(valued))
			if err != nil {
				return nil, err
			}
			alone += one
		}
		s.Tables = append(s.Tables, row)
	}
	epsilon, delta := set.Total.Epsilon.Value(), set.Total.Delta.Value()
	derived, err := protocols.SetDelta(laws, copies, epsilon, delta)
	if err != nil {
		return nil, err
	}
	if !(derived <= delta) {
		return nil, fmt.Errorf("the total is false: all tables together have delta %s at epsilon %s, and the set claims %s",
			decimal.Up(derived, 3), set.Total.Epsilon, set.Total.Delta)
	}
	if set.Trial {
		s.Trust = "trial"
		return s, nil
	}
	s.Epsilon, s.Delta, s.Derived, s.Alone = &epsilon, &delta, &derived, &alone
	return s, nil
}

// aloneEpsilon returns the ε of a number of reports to one table, at a δ.
func aloneEpsilon(law func() (*compose.Law, error), copies uint64, delta float64) (float64, error) {
	one, err := law()
	if err != nil {
		return 0, err
	}
	return compose.Epsilon([]compose.Observation{one.Observation(copies)}, delta)
}

// epochsText says how long a table's epochs are, and how many it has.
func epochsText(e task.Epochs) string {
	length := fmt.Sprintf("%d s", e.Length)
	switch e.Length {
	case 86400:
		length = "day"
	case 7 * 86400:
		length = "week"
	case task.Month:
		length = "month"
	}
	return fmt.Sprintf("%d × %s", e.Count, length)
}

// limitText says which reports of a browser to a table a total covers.
func limitText(t *task.Task) string {
	var limits []string
	for _, limit := range []struct{ name, text string }{{"cap", t.Epochs.Cap.String()}, {"pace", t.Epochs.Pace.String()},
		{"events", t.Epochs.Events.String()}} {
		if limit.text != "none" {
			limits = append(limits, limit.name+" "+limit.text)
		}
	}
	return cmp.Or(strings.Join(limits, ", "), "none")
}

func (s *setSummary) print(w io.Writer) error {
	fmt.Fprintf(w, "set %s %s\nsigned by %s\n", s.Name, s.ID, s.Owner)
	if s.Root != s.ID {
		fmt.Fprintf(w, "It renews %s, which pages name.\n", s.Root)
	}
	if s.Epsilon == nil {
		fmt.Fprintf(w, "Trust: trial. One operator runs all relays and could learn what each visitor answers.\n")
	} else {
		fmt.Fprintf(w, "All tables together: (%s, %s)-DP in any %d days, provided one relay does not collude with the verifier.\n"+
			"Composed: delta %s at that epsilon. Added up by tables it would be epsilon %s.\n", decimal.Format(*s.Epsilon, -1),
			decimal.Format(*s.Delta, -1), s.Days, decimal.Up(*s.Derived, 3), decimal.Up(*s.Alone, 3))
	}
	fmt.Fprintf(w, "From %s until %s. A browser sends %d bytes a day.\n\n", s.From, s.Until, s.Bytes)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "table\tepochs\tfrom\tlimits\tcells\tcopies\trmse of a cell")
	for _, row := range s.Tables {
		cells, rmse := strconv.FormatUint(row.Cells, 10), "–"
		if row.Bare {
			cells = "none"
		} else {
			rmse = decimal.Format(*row.Error, 3)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", row.Name, row.Epochs, row.From, row.Limit, cells, row.Copies, rmse)
	}
	return tab.Flush()
}
