package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

type options struct {
	input, column string
	format        table.Format
	task          string
	query         task.Query
	span          string
	bins          uint64
	length        uint64
	padding       task.Padding
	lanes         uint64
	users         int
	batch         uint64
	honest        float64
	epsilon       float64
	delta         float64
	noise         string
	localEpsilon  float64
	nobodyHonest  bool
	hops          int
	headless      bool
	listen        string
	hosts         cli.HostsFlag
	origins       []string // origins of pages that may report; empty for any
	www           string
	epoch         uint64
	month         bool
	seed          uint64

	lo, hi float64
	given  *task.Task // The task of --task, or nil.
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.input, "input", "",
		"CSV file, may be gzip-compressed, for strings one text in a line (default: flights that ship with the demo, "+
			"and links to a site's pages that moved)")
	f.StringVar(&o.column, "column", "",
		"column name or index (default: delay_minutes of the flights, else the only one)")
	cli.ReadsTables(cmd, &o.format)
	f.StringVar(&o.task, "task", "",
		"draft of 'doona plan' or 'doona task new', instead of the flags of the query")
	f.StringVar((*string)(&o.query), "query", string(task.Mean),
		"count (of values within the range), mean, sum, histogram, vector (sum), vectormean, or strings")
	f.StringVar(&o.span, "range", "0,180",
		"LO,HI; values outside are clipped (vector: default 0,1; vectormean: vectors are clipped to norm 1)")
	f.Uint64Var(&o.bins, "bins", 16, "bins of a histogram, 2 to 1048576")
	f.Uint64Var(&o.length, "length", 32, "most bytes of a text, for strings, 1 to 128")
	f.StringVar((*string)(&o.padding), "padding", "",
		"full or none, where the protocol has a choice (default: its own)")
	f.Uint64Var(&o.lanes, "lanes", 0,
		"1, or one for each coefficient, where the protocol has a choice (default: its own)")
	f.IntVar(&o.users, "users", 20000, "clients: the first rows of the input, 1 to all of them")
	f.Uint64Var(&o.batch, "batch", 5000, "n, reports shuffled together; 1 to users")
	f.Float64Var(&o.honest, "honest", 0.9, "share of clients assumed honest, in (0, 1]")
	f.Float64Var(&o.epsilon, "epsilon", 1, "ε, in (0, 100]")
	f.Float64Var(&o.delta, "delta", 1e-6, "δ, in (0, 1)")
	f.StringVar(&o.noise, "noise", "clients",
		"clients randomize, or relays add dummies: then no other client needs to be honest")
	f.Float64Var(&o.localEpsilon, "local-epsilon", 0,
		"with --noise relays: ε₀ that remains if all relays collude, in (0, 64]; 0: nothing remains")
	f.BoolVar(&o.nobodyHonest, "nobody-honest", false,
		"then attack one client with 999 other clients and all relays but one, with both kinds of noise, and print what "+
			"that shows")
	f.IntVar(&o.hops, "hops", 2, "relays, 1 to 8")
	f.BoolVar(&o.headless, "headless", false,
		"end after the estimate instead of serving the page; without --listen, --epoch and --www")
	f.BoolVar(&o.month, "month", false,
		"with --headless: print a site's month, which the page has at /month/; of the other flags it takes --seed and "+
			"--json")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the month's simulated visitors and their noise, 0 or more")
	f.Lookup("delta").DefValue = decimal.Format(o.delta, -1)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address of the page")
	o.hosts.Register(cmd)
	f.Uint64Var(&o.epoch, "epoch", 20, "seconds of an epoch on the page, 10 to 86400")
	f.StringVar(&o.www, "www", "build/www", "folder of the built page")
}

// validate checks the flags' values and refuses flags that have no effect.
func (o *options) validate(cmd *cobra.Command) error {
	if o.month {
		return o.checkMonth(cmd)
	}
	if err := cmp.Or(o.take(cmd), o.hosts.Check()); err != nil {
		return err
	}
	err := o.refuse(cmd)
	if err != nil {
		return err
	}
	if o.isVector() && !cmd.Flags().Changed("range") {
		o.span = "0,1"
	}
	if o.lo, o.hi, err = cli.ParseRange(o.span); err != nil {
		return err
	}
	if o.given != nil && !o.query.Info().YesNo() {
		o.lo, o.hi = o.given.Input.Lo.Float64(), o.given.Input.Hi.Float64()
	}
	if o.given == nil && o.byRelays() && !cmd.Flags().Changed("batch") {
		o.batch = min(o.batch, uint64(max(o.users, 1)))
	}
	switch {
	case o.noise != "clients" && !o.byRelays():
		return cli.Usagef("invalid noise %q: want clients or relays", o.noise)
	case cmd.Flags().Changed("lanes") && o.lanes == 0:
		return cli.Usagef("invalid lanes 0: want 1 or more")
	case o.hops < 1 || o.hops > task.MaxRelays:
		return cli.Usagef("invalid hops %d: want 1 to %d", o.hops, task.MaxRelays)
	case o.epoch < 10 || o.epoch > 86400:
		return cli.Usagef("invalid epoch %d: want 10 to 86400 seconds", o.epoch)
	case o.users < 1:
		return cli.Usagef("invalid users %d: want 1 or more", o.users)
	case o.batch < 1 || o.batch > uint64(o.users):
		return cli.Usagef("invalid batch %d: want 1 to users (%d): a batch that is not full waits for "+
			"the end of the epoch, and is then destroyed unless relays add noise", o.batch, o.users)
	case o.isVector() && o.input == "":
		return cli.Usagef("invalid query %q: want it with --input, a file with a column for each coordinate", o.query)
	}
	return nil
}

// refuse returns an error if a flag is given that would have no effect.
func (o *options) refuse(cmd *cobra.Command) error {
	given := cli.Given(cmd)
	err := planner.CheckOptions(o.query, func(option string) (string, bool) {
		if option == "range" && o.query.Info().YesNo() {
			return "", false // --range is allowed: the demo counts the values in it
		}
		return given(option)
	})
	if err == nil && o.byRelays() {
		err = cli.Refuse(cmd, "with --noise relays: no other client needs to be honest", "honest")
	} else if err == nil {
		err = cli.Refuse(cmd, "without --noise relays", "local-epsilon")
	}
	if err == nil && o.isText() {
		err = cli.Refuse(cmd, "for strings, whose input has one text in a line",
			append([]string{"column"}, cli.TableFlags...)...)
	}
	if err == nil && o.input == "" {
		err = cli.Refuse(cmd, "without --input FILE", cli.TableFlags...)
	}
	if err == nil && o.headless {
		err = cli.Refuse(cmd, "with --headless: no page is served", "listen", "hosts", "epoch", "www")
		if err == nil {
			err = cli.Refuse(cmd, "with --headless and without --month: only the month uses it", "seed")
		}
	}
	return cli.FlagError(err)
}

func (o *options) byRelays() bool { return o.noise == "relays" }

// isVector reports whether a client's value is a whole row of the input, not one number in it.
func (o *options) isVector() bool { return o.query.Info().Shape == task.PerVector }

func (o *options) isText() bool { return o.query.Info().Shape == task.PerText }

// pageCoordinates is the largest number of coordinates for which the page has sliders.
const pageCoordinates = 12

// checkPage returns an error if the page cannot show vectors of dim coordinates.
func (o *options) checkPage(dim int) error {
	if o.headless || !o.isVector() || dim <= pageCoordinates {
		return nil
	}
	return cli.Usagef("invalid input: want at most %d columns for the page, not %d; or use --headless",
		pageCoordinates, dim)
}

// values reads the clients' values from the input, one row per client. It fails if there are fewer rows than clients.
func (o *options) values() (rows [][]float64, err error) {
	if o.isText() {
		return o.textValues()
	}
	if o.isVector() && o.column == "" {
		rows, err = table.ReadRows(o.input, o.format, o.users)
	} else {
		var values []float64
		values, err = o.single()
		for i := range values {
			rows = append(rows, values[i:i+1])
		}
	}
	if err == nil && len(rows) < o.users {
		err = cli.Usagef("invalid users %d: want at most %d, the rows of the input", o.users, len(rows))
	}
	return rows, err
}

// single reads the input's column for a query about numbers.
func (o *options) single() ([]float64, error) {
	if o.input == "" {
		if o.column == "" {
			o.column = "delay_minutes"
		}
		return table.Parse(flights(), table.Format{Column: o.column}, o.users)
	}
	f := o.format
	f.Column = o.column
	return table.Read(o.input, f, o.users)
}

// draft returns a calibrated task for batches of the given size. For vectors it has dim coordinates.
func (o *options) draft(name string, batch uint64, dim int) (*task.Task, error) {
	if t := o.own(name, batch); t != nil {
		return t, nil
	}
	q := planner.Query{Name: name, Query: o.query, Lo: o.lo, Hi: o.hi, Clip: true,
		Batch: batch, Honest: o.honest, Epsilon: o.epsilon, Delta: o.delta, Padding: o.padding, Lanes: o.lanes}
	if o.byRelays() {
		q.Relays = &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{LocalEpsilon: o.localEpsilon}}
	}
	if o.isVector() {
		q.Dim = uint64(dim)
	}
	if o.query.Info().Shape == task.PerBin {
		q.Bins = o.bins
	}
	if o.isText() {
		q.Length = o.length
	}
	if o.given != nil {
		q.Protocol, q.Labels, q.Clip = o.given.Protocol, o.given.Input.Labels, o.given.Input.Clip
	}
	t, err := planner.Draft(q)
	return t, cli.FlagError(err)
}

func (o *options) clientValues(rows [][]float64) [][]float64 {
	out := make([][]float64, len(rows))
	for i, row := range rows {
		out[i] = o.clientValue(row)
	}
	return out
}

// clientValue returns the value that a client with this row reports. For a count it is 1 or 0: whether the row is in
// the range.
func (o *options) clientValue(row []float64) []float64 {
	if !o.query.Info().YesNo() {
		return row
	}
	if row[0] >= o.lo && row[0] <= o.hi {
		return []float64{1}
	}
	return []float64{0}
}
