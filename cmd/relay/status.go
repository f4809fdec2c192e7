package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/relay"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status --config relay.yaml | --admin URL",
		Short: "Show the progress of every task and epoch",
		Long: `Status prints, for every task and epoch, how many batches the relay has made and how many of them the
next hop has confirmed. It also prints the findings about other relays' batches. For an erased epoch
it prints how many reports and slots the relay refused, by reason, rounded up to a power of two.

An epoch is open while it accepts reports or batches. It is complete when no further batch will
follow. It is erased when its key, its replay set and its clients' counts are deleted. Status does not
show how many reports an open batch has: watching that number would reveal when each report came.

--config reads the store, also while the relay runs. --admin asks a running relay. Only a running relay
knows whether other processes on its database have fallen silent.`,
		Example: `  doona init try && relay status --config try/relay1/relay.yaml
  relay status --admin http://127.0.0.1:9081 --json`,
		Args: cli.NoArgs,
	}
	get := statusFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		status, err := get(cmd)
		if err != nil {
			return err
		}
		if err := cli.Print(cmd, status, func(w io.Writer) error { return printStatus(w, status) }); err != nil {
			return err
		}
		return status.Err()
	}
	return cmd
}

// statusFlags adds the flags --config, --store and --admin. It returns a function that gets the status of the relay
// that they name.
func statusFlags(cmd *cobra.Command) (get func(*cobra.Command) (*relay.Status, error)) {
	var f configFlags
	var admin string
	f.register(cmd)
	cmd.Flags().StringVar(&admin, "admin", "", "base URL of a relay's admin address")
	return func(cmd *cobra.Command) (*relay.Status, error) {
		switch {
		case (f.config == "") == (admin == ""):
			return nil, cli.Usagef("missing flag: want either --config or --admin")
		case admin == "":
			return localStatus(cmd.Context(), &f)
		}
		if err := cli.Refuse(cmd, "with --admin: the running relay has opened its store", "store"); err != nil {
			return nil, err
		}
		return remoteStatus(cmd.Context(), admin)
	}
}

// localStatus reads a relay's status from its files, without a running relay. It first runs checks, and returns the
// first error of a check.
func localStatus(ctx context.Context, f *configFlags, checks ...func(*relay.Inspected) error) (*relay.Status, error) {
	config, err := f.load()
	if err != nil {
		return nil, err
	}
	r, err := relay.Inspect(config)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for _, check := range checks {
		if err := check(r); err != nil {
			return nil, err
		}
	}
	return r.Status(ctx)
}

func remoteStatus(ctx context.Context, admin string) (*relay.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(admin, "/")+"/status", nil)
	if err != nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, cli.Usagef("invalid admin %q: want a URL such as http://127.0.0.1:9081", admin)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("couldn't ask the relay: %w", err)
	}
	defer resp.Body.Close()
	var status relay.Status
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("couldn't ask the relay: %s", cli.Answer(resp))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, cli.MaxStatus)).Decode(&status); err != nil {
		return nil, fmt.Errorf("couldn't read the relay's answer: %w", err)
	}
	return &status, nil
}

func printStatus(w io.Writer, status *relay.Status) error {
	if status.StateRollback != "" {
		fmt.Fprintf(w, "state rollback detected: %s: see relay end-epochs --help\n", status.StateRollback)
	}
	if status.Joining != "" {
		fmt.Fprintln(w, status.Joining)
	}
	if status.Full != "" {
		fmt.Fprintln(w, status.Full)
	}
	if status.Unscrubbed != "" {
		fmt.Fprintln(w, "the store's log still holds deleted rows:", status.Unscrubbed)
	}
	for _, f := range status.Refusing {
		fmt.Fprintln(w, f)
	}
	if status.Reload != nil {
		fmt.Fprintln(w, status.Reload)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TASK\tNAME\tHOP\tEPOCH\tSTATE\tBATCHES\tCONFIRMED")
	for _, t := range status.Tasks {
		for _, e := range t.Epochs {
			fmt.Fprintf(table, "%.8s\t%s\t%d\t%d\t%s\t%d\t%d\n", t.ID, t.Name, t.Hop, e.Epoch, e.State, e.Batches,
				e.Confirmed)
		}
		if len(t.Epochs) == 0 {
			fmt.Fprintf(table, "%.8s\t%s\t%d\t-\t-\t0\t0\n", t.ID, t.Name, t.Hop)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, s := range status.Sets {
		fmt.Fprintln(w, s)
	}
	for _, o := range status.Owners {
		fmt.Fprintln(w, o)
	}
	for _, t := range status.Tasks {
		if text := t.WithdrawnText(); text != "" {
			fmt.Fprintln(w, text)
		}
		for _, e := range t.Epochs {
			for _, reason := range slices.Sorted(maps.Keys(e.Refused)) {
				fmt.Fprintf(w, "refused: task %.8s, epoch %d: at most %d, %s\n", t.ID, e.Epoch, e.Refused[reason],
					reason)
			}
		}
		for _, f := range t.Findings {
			further := ""
			if f.Further > 0 {
				further = fmt.Sprintf(", and of %d further batches up to %d", f.Further, f.Latest)
			}
			fmt.Fprintf(w, "finding: task %.8s, epoch %d, batch %d: %s%s\n", t.ID, f.Epoch, f.Batch, f.Reason, further)
		}
	}
	return nil
}
