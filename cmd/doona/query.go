package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
)

// queryFlags are the flags of a query and its target that `doona task new` and `doona plan` share.
type queryFlags struct {
	limit  string // The cap, R/W.
	pace   string // r/w.
	events string // K/W.
	query  *planner.Query
	span   string
	noClip bool
}

func (f *queryFlags) add(cmd *cobra.Command, q *planner.Query, queries string) {
	f.query = q
	flags := cmd.Flags()
	flags.StringVar((*string)(&q.Query), "query", "", queries)
	flags.StringVar(&f.span, "range", "0,1", "LO,HI of the value, in its own unit, both within ±1e9")
	flags.BoolVar(&f.noClip, "no-clip", false, "values outside the range are errors and not clipped")
	flags.Uint64Var(&q.Bins, "bins", 0, "bins of a histogram, 2 to 1048576")
	flags.BoolVar(&q.Labels, "labels", false, "histogram values are categories 0 to bins-1")
	flags.Uint64Var(&q.Dim, "dim", 0, "coordinates of a vector or vectormean, 1 to 1048576")
	flags.Uint64Var(&q.Length, "length", 0, "most bytes of a text, for strings, 1 to 128; a longer text is cut")
	flags.Float64Var(&q.Honest, "honest", 0.9, "share of clients assumed honest, in (0, 1]; not with noise by relays")
	flags.Float64Var(&q.Epsilon, "epsilon", 0, "ε of one epoch, in (0, 100] (required without a total)")
	flags.Float64Var(&q.Delta, "delta", 0, "δ of one epoch, in (0, 1) (required without a total)")
	flags.Float64Var(&q.TotalEpsilon, "total-epsilon", 0,
		"ε of all epochs together, in (0, 100]; --epsilon and --delta may then be omitted")
	flags.Float64Var(&q.TotalDelta, "total-delta", 0, "δ of all epochs together, in (0, 1)")
	flags.StringVar(&f.limit, "cap", "", "R/W: at most R reports of a browser in any W epochs; the total covers only these")
	flags.StringVar(&f.pace, "pace", "", "r/w, with --cap: at most r reports in each w epochs, from a random one on, so that "+
		"browsers do not use up the cap together")
	flags.StringVar(&f.events, "events", "",
		"K/W: at most K reports of a browser in any W epochs differ from --default; the total covers only these")
	flags.Uint64Var(&q.Events.Default, "default", 0, "with --events: what a browser without an event sends. 0 or 1 of a "+
		"count, or a bin")
}

// check refuses flags that the query would ignore, and a missing ε or δ.
func (f *queryFlags) check(cmd *cobra.Command) error {
	if err := cli.FlagError(planner.CheckOptions(f.query.Query, cli.Given(cmd))); err != nil {
		return err
	}
	if err := checkTarget(cmd); err != nil {
		return err
	}
	if cmd.Flags().Changed("total-epsilon") && f.query.TotalEpsilon == 0 { // Zero stands for no total.
		return cli.FlagError(invalid.Field("total-epsilon", "0", "a number in (0, 100]"))
	}
	if f.events == "" {
		if err := cli.Refuse(cmd, "without --events", "default"); err != nil {
			return err
		}
	}
	if !f.query.Labels {
		return nil
	}
	return cli.Refuse(cmd, "with --labels: values are the categories 0 to bins-1", "range", "no-clip")
}

func (f *queryFlags) read() (err error) {
	if err = cmp.Or(f.query.Cap.Parse("cap", f.limit), f.query.Pace.Parse("pace", f.pace),
		f.query.Events.Parse(f.events)); err != nil {
		return cli.FlagError(err)
	}
	f.query.Lo, f.query.Hi, err = cli.ParseRange(f.span)
	f.query.Clip = !f.noClip
	return err
}
