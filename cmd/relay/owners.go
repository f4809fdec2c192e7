package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/relay"
)

func ownersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "owners --config relay.yaml | --admin URL",
		Short: "Show the approved owners, their limits and their use of the relay",
		Long: `Owners prints one line for each owner that relay.yaml approves (owners:).

OWNER is the start of the owner's key after "ed25519:", as in metrics and alerts. TASKS and KEYS are
the task slots in use: by tasks, where a stream counts as one, and by keys that wait for their task.
LIMIT is their limit. BATCHES and CONFIRMED count the batches of the tasks that the relay serves now.
REPORTS is at most how many reports the confirmed batches hold: n for each batch. RATE, DISK and
DUMMIES are the owner's other limits. STATE is "limited" if one of them has refused reports in the last
ten minutes. Nothing shows how many reports an open batch has, or how near an owner is to a limit.

To add, limit, suspend or remove an owner, change relay.yaml and send the relay SIGHUP. --config reads
relay.yaml, the owners' folders and the store, also while the relay runs. --admin asks a running relay.`,
		Example: `  doona init try && relay owners --config try/relay1/relay.yaml
  relay owners --admin http://127.0.0.1:9081 --json`,
		Args: cli.NoArgs,
	}
	get := statusFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		status, err := get(cmd)
		if err == nil {
			err = status.Err()
		}
		if err != nil {
			return err
		}
		answer := ownersAnswer{Owners: status.Owners}
		if answer.Owners == nil {
			answer.Owners = []relay.OwnerStatus{}
		}
		return cli.Print(cmd, answer, func(w io.Writer) error { return printOwners(w, answer.Owners) })
	}
	return cmd
}

// ownersAnswer is the output of owners --json.
type ownersAnswer struct {
	Owners []relay.OwnerStatus `json:"owners"`
}

func printOwners(w io.Writer, owners []relay.OwnerStatus) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OWNER\tFOLDER\tSTATE\tTASKS\tKEYS\tLIMIT\tBATCHES\tCONFIRMED\tREPORTS\tRATE\tDISK\tDUMMIES")
	for _, o := range owners {
		state := "active"
		switch {
		case o.Suspended:
			state = "suspended"
		case o.Limited:
			state = "limited"
		}
		disk := "-"
		if o.Bytes > 0 {
			disk = relay.Size(o.Bytes).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", o.Short(), o.Folder, state, o.Tasks, o.Asked,
			o.TaskLimit, o.Batches, o.Confirmed, o.Reports, orNone(o.ReportsPerSecond), disk, orNone(o.Dummies))
	}
	return table.Flush()
}

// orNone returns a limit as text, or "-" if there is none.
func orNone[N int | uint64](limit N) string {
	if limit == 0 {
		return "-"
	}
	return fmt.Sprint(limit)
}
