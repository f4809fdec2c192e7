package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/task"
)

// renewAllFlags are the flags of `doona renew`.
type renewAllFlags struct {
	owner, recovery, ca string
	verifier, sign      string
	issuer              string
	within              time.Duration
}

func renewCommand() *cobra.Command {
	var f renewAllFlags
	cmd := &cobra.Command{
		Use:   "renew FOLDER --owner-key FILE --verifier-keys DIR",
		Short: "Renew all tasks and sets of a folder that end soon",
		Long: `Renew is for a timer: run it once a day. FOLDER has the bundles of your streams' first tasks, NAME.bundle, and
the folders of your sets. Renew signs the next task of each stream, and the next days of each set, that ends
within the time of --within, with as many epochs as before, and sends them to the relays. It writes NAME.1.bundle,
NAME.2.bundle and so on, and in a set's folder what 'doona set renew' writes. Keep all these files.

Run it as often as you like: what is renewed already is only sent again to the relays. If a relay cannot be
reached, Renew goes on with the others, names each one that failed and exits with status 1. The next run goes
on from there. Within 14 days of the end the alerts of relays and verifier fire too.

DIR is the verifier's folder of successors, with the key lists ID/POSITION-EPOCHS.keys.pub. With
--verifier-sign-key Renew makes missing keys there, as 'verifier keygen' does: run it as the verifier's user.
A table of a set has a folder of its own, and tables with one clock share their keys. A stream that its owner
ended is left alone.`,
		Example: `  doona renew tasks --owner-key owner.key --verifier-keys data/successors --verifier-sign-key verifier.sign`,
		Args:    oneFolder,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.owner, "owner-key", "", "owner's signing key file")
	flags.StringVar(&f.verifier, "verifier-keys", "", "verifier's folder of successors")
	flags.StringVar(&f.sign, "verifier-sign-key", "", "verifier's signing key file, to make its missing keys")
	flags.StringVar(&f.issuer, "issuer-keys", "", "folder of the issuer's next key lists, for tasks with tokens")
	flags.StringVar(&f.recovery, "recovery", "", "the streams' recovery key, ed25519:…, if they have one")
	flags.DurationVar(&f.within, "within", 21*24*time.Hour, "renew what ends within this time, 1h to 8784h")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "owner-key", "verifier-keys")
	return cmd
}

// series is a stream or a set in a folder, which goes on by renewals.
type series struct {
	name     string
	newest   task.Epochs
	position uint64 // of the newest; 0 for the first task or set
	// send sends the newest to its relays again. check asks the relays whether it is their newest. next signs the
	// following one and sends it.
	send, check func(ctx context.Context) error
	next        func(ctx context.Context) (task.Epochs, error)
}

// errEnded means that an owner has ended a stream.
var errEnded = errors.New("the owner has ended it")

// The states of a series after a run.
const (
	stateCurrent = "current"
	stateRenewed = "renewed"
	stateEnded   = "ended"
	stateFailed  = "failed"
)

// renewResult is the result of one series.
type renewResult struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Until time.Time `json:"until"`
	Error string    `json:"error,omitempty"`
}

func (f *renewAllFlags) run(cmd *cobra.Command, folder string) error {
	if f.within < time.Hour || f.within > 366*24*time.Hour {
		return cli.Usagef("invalid within %s: want 1h to 8784h", f.within)
	}
	release, err := durable.Claim(folder) // Two runs at a time could sign two tasks of one position.
	if err != nil {
		return fmt.Errorf("couldn't use %s: %w", folder, err)
	}
	defer release()
	all, results, err := f.find(folder)
	if err != nil {
		return err
	}
	for _, s := range all {
		results = append(results, f.renew(cmd.Context(), s))
	}
	if err := cli.Print(cmd, results, func(w io.Writer) error { return printRenewed(w, results) }); err != nil {
		return err
	}
	var failed []string
	for _, r := range results {
		if r.Error != "" {
			failed = append(failed, r.Name+": "+r.Error)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("couldn't renew %d of %d:\n%s", len(failed), len(results), strings.Join(failed, "\n"))
	}
	return nil
}

// renew renews a series if it is due, and else sends its newest task or set again.
func (f *renewAllFlags) renew(ctx context.Context, s series) renewResult {
	r := renewResult{Name: s.name, State: stateCurrent}
	now, over := time.Now(), s.newest.Over()
	due := s.newest.Start <= uint64(now.Unix()) && over <= uint64(now.Add(f.within).Unix())
	var err error
	if s.position > 0 {
		if err = s.send(ctx); err != nil && errors.Is(s.check(ctx), errEnded) {
			err = errEnded
		}
	}
	if err == nil && due {
		err = s.check(ctx)
	}
	if err == nil && due {
		r.State = stateRenewed
		var next task.Epochs
		if next, err = s.next(ctx); err == nil {
			over = next.Over()
		}
	}
	r.Until = time.Unix(int64(over), 0).UTC()
	switch {
	case errors.Is(err, errEnded):
		r.State = stateEnded
	case err != nil:
		r.State, r.Error = stateFailed, err.Error()
	}
	return r
}

func printRenewed(w io.Writer, results []renewResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tUNTIL")
	for _, r := range results {
		until := "-"
		if !r.Until.IsZero() {
			until = dayOf(uint64(r.Until.Unix()))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Name, r.State, until)
	}
	return table.Flush()
}
