package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// devOptions describe the query and the ports.
type devOptions struct {
	Query  task.Query `json:"query"`
	Range  string     `json:"range"`
	Bins   uint64     `json:"bins"`
	Labels bool       `json:"labels"`
	Batch  uint64     `json:"batch"`
	Epoch  uint64     `json:"epoch"`
	Port   uint16     `json:"port"`
}

// devQueries are the queries that 'doona dev' offers: with one report, the answer is that report's value.
var devQueries = []task.Query{task.Count, task.Sum, task.Mean, task.Histogram}

func (o *devOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(&o.Query), "query", string(task.Mean), "count (of 1 among 0 and 1), sum, mean or histogram")
	f.StringVar(&o.Range, "range", "0,100", "LO,HI of the value; values outside are clipped")
	f.Uint64Var(&o.Bins, "bins", 10, "bins of a histogram, 2 to 1000")
	f.BoolVar(&o.Labels, "labels", false, "histogram values are categories 0 to bins-1")
	f.Uint64Var(&o.Batch, "batch", 1, "reports shuffled together, 1 to 1000: fewer in an epoch are destroyed")
	f.Uint64Var(&o.Epoch, "epoch", 10, "seconds of an epoch, in which a browser reports once, 5 to 3600")
	f.Uint16Var(&o.Port, "port", 7280, "the first of three ports, of the estimate's page and the relays, 1024 to 65533; "+
		"0: any that are free")
}

func (o *devOptions) validate(cmd *cobra.Command) error {
	if !slices.Contains(devQueries, o.Query) {
		return cli.Usagef("invalid query %q: want count, sum, mean or histogram", string(o.Query))
	}
	if err := planner.CheckOptions(o.Query, cli.Given(cmd)); err != nil {
		return cli.FlagError(err)
	}
	if o.Labels {
		if err := cli.Refuse(cmd, "with --labels: values are the categories 0 to bins-1", "range"); err != nil {
			return err
		}
	}
	_, _, err := cli.ParseRange(o.Range)
	switch {
	case err != nil:
		return err
	case o.Bins < 2 || o.Bins > 1000:
		return cli.Usagef("invalid bins %d: want 2 to 1000", o.Bins)
	case o.Batch < 1 || o.Batch > 1000:
		return cli.Usagef("invalid batch %d: want 1 to 1000", o.Batch)
	case o.Epoch < 5 || o.Epoch > 3600:
		return cli.Usagef("invalid epoch %d: want 5 to 3600 seconds", o.Epoch)
	case o.Port != 0 && (o.Port < 1024 || o.Port > 65533):
		return cli.Usagef("invalid port %d: want 1024 to 65533, or 0", o.Port)
	}
	return nil
}

// take adopts the options of an earlier start. A flag that contradicts them is an error.
func (o *devOptions) take(cmd *cobra.Command, kept devOptions) error {
	asked := map[string]string{}
	for _, name := range []string{"query", "range", "bins", "labels", "batch", "epoch", "port"} {
		if value, given := cli.Given(cmd)(name); given {
			asked[name] = value
		}
	}
	*o = kept
	for name, value := range asked {
		if is := cmd.Flags().Lookup(name).Value.String(); is != value {
			return cli.Usagef("invalid %s %s: want %s, as in the task in %s, or --new for another task", name, value, is,
				folder)
		}
	}
	return nil
}

// addresses returns the addresses of the page and of the two relays. With port 0 the system chooses free ports.
func (o *devOptions) addresses() (out []string) {
	for i := range uint16(3) {
		port := o.Port
		if port != 0 {
			port += i
		}
		out = append(out, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	}
	return out
}

// With ε = 30 the randomizer changes a report's value only with probability e⁻³⁰. δ is small enough that all epochs of
// devLife together stay within the δ that clients accept by default.
const (
	devEpsilon = 30
	devDelta   = 1e-9
	devLife    = 12 * time.Hour
)

// draft returns a task that begins now.
func (o *devOptions) draft(now time.Time) (*task.Task, error) {
	q := planner.Query{Name: "doona dev: nothing is private", Query: o.Query, Labels: o.Labels, Clip: !o.Labels,
		Batch: o.Batch, Honest: 1, Epsilon: devEpsilon, Delta: devDelta}
	q.Lo, q.Hi, _ = cli.ParseRange(o.Range)
	if o.Query.Info().Shape == task.PerBin {
		q.Bins = o.Bins
	}
	t, err := planner.Draft(q)
	if err != nil {
		return nil, cli.FlagError(err)
	}
	t.Clients.Quota = 1000 // All browsers and tests on this machine share one network.
	t.Epochs = task.Epochs{Start: uint64(now.Unix()), Length: task.Length(o.Epoch),
		Count: uint64(devLife/time.Second) / o.Epoch}
	return t, nil
}

func (o *devOptions) question() string {
	values := "a value in " + o.Range
	switch {
	case !o.Query.Info().Ranged:
		values = "0 or 1"
	case o.Labels:
		values = fmt.Sprintf("a category from 0 to %d", o.Bins-1)
	}
	return fmt.Sprintf("%s of %s; each browser reports once in %d s", o.Query, values, o.Epoch)
}

// whyNot says why a deployment of 'doona dev' protects no value.
func (o *devOptions) whyNot() string {
	if o.Batch == 1 {
		return "a batch is one report, and all keys are in " + folder
	}
	return fmt.Sprintf("a batch is %d reports, almost without noise, and all keys are in %s", o.Batch, folder)
}

// example returns a valid value, for the code that 'doona dev' prints.
func (o *devOptions) example() string {
	if !o.Query.Info().Ranged || o.Labels {
		return "1"
	}
	lo, hi, _ := cli.ParseRange(o.Range)
	if lo <= 42 && 42 <= hi {
		return "42"
	}
	return strconv.FormatFloat((lo+hi)/2, 'g', -1, 64)
}
