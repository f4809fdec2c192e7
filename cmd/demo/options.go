package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/doona-dp/doona/cmd/demo/flights"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/task"
)

// options are the demo's flags.
type options struct {
	input, column string
	query, span   string
	bins          uint64
	users         int
	batch         uint64
	honest        float64
	epsilon       float64
	delta         float64
	hops          int
	headless      bool
	listen        string
	www           string

	lo, hi float64
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.input, "input", "", "CSV file, may be gzip-compressed (default: the flights that ship with the demo)")
	f.StringVar(&o.column, "column", "", "column name or index (default: delay_minutes of the flights, else the only one)")
	f.StringVar(&o.query, "query", task.Mean, "count (of values within the range), mean, sum or histogram")
	f.StringVar(&o.span, "range", "0,180", "LO,HI; values outside are clipped")
	f.Uint64Var(&o.bins, "bins", 16, "bins of a histogram, 2 or more")
	f.IntVar(&o.users, "users", 20000, "clients: the first rows of the input")
	f.Uint64Var(&o.batch, "batch", 5000, "n, reports shuffled together; at most users")
	f.Float64Var(&o.honest, "honest", 0.9, "share of clients assumed honest, in (0, 1]")
	f.Float64Var(&o.epsilon, "epsilon", 1, "ε, in (0, 100]")
	f.Float64Var(&o.delta, "delta", 1e-6, "δ, in (0, 1)")
	f.IntVar(&o.hops, "hops", 2, "relays, 1 to 8")
	f.BoolVar(&o.headless, "headless", false, "end after the estimate instead of serving the page")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address of the page")
	f.StringVar(&o.www, "www", "build/www", "folder of the built page")
}

// validate checks the flags' values.
func (o *options) validate(cmd *cobra.Command) error {
	var err error
	if o.lo, o.hi, err = cli.ParseRange(o.span); err != nil {
		return err
	}
	switch {
	case o.hops < 1 || o.hops > 8:
		return cli.Usagef("invalid hops %d: want 1 to 8", o.hops)
	case o.users < 1:
		return cli.Usagef("invalid users %d: want 1 or more", o.users)
	case o.batch < 1 || o.batch > uint64(o.users):
		return cli.Usagef("invalid batch %d: want 1 to users (%d): a smaller batch is never released", o.batch, o.users)
	case o.query == task.Histogram || o.query == task.Count || o.query == task.Sum || o.query == task.Mean:
		return nil
	}
	return cli.Usagef("invalid query %q: want count, mean, sum or histogram", o.query)
}

// values reads the input; more users than rows is a wrong flag.
func (o *options) values() ([]float64, error) {
	var values []float64
	var err error
	if o.input == "" {
		if o.column == "" {
			o.column = "delay_minutes"
		}
		values, err = table.Parse(flights.Open(), o.column, o.users)
	} else {
		values, err = table.Read(o.input, o.column, o.users)
	}
	if err == nil && len(values) < o.users {
		err = cli.Usagef("invalid users %d: want at most %d, the rows of the input", o.users, len(values))
	}
	return values, err
}

// draft returns the calibrated task for batches of the given size.
func (o *options) draft(name string, batch uint64) (*task.Task, error) {
	q := planner.Query{Name: name, Query: o.query, Lo: o.lo, Hi: o.hi, Clip: true,
		Batch: batch, Honest: o.honest, Epsilon: o.epsilon, Delta: o.delta}
	if o.query == task.Histogram {
		q.Bins = o.bins
	}
	t, err := planner.Draft(q)
	return t, cli.FlagError(err)
}

// clientValue is what a client with this row reports: for a count, whether the row is in the range.
func (o *options) clientValue(row float64) float64 {
	if o.query != task.Count {
		return row
	}
	if row >= o.lo && row <= o.hi {
		return 1
	}
	return 0
}
