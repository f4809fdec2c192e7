package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/relay"
)

// endResult is the output of end-epochs.
type endResult struct {
	Cause  string             `json:"cause"`
	Epochs []relay.BegunEpoch `json:"epochs"`
	Ended  bool               `json:"ended"`
}

func endEpochsCommand() *cobra.Command {
	var f configFlags
	var confirm bool
	cmd := &cobra.Command{
		Use:   "end-epochs --config relay.yaml [--confirm]",
		Short: "End the epochs of a store that was rolled back or lost",
		Long: `End-epochs is for a relay that says "state rollback detected". Its store is older than its secret or
its keys, for example because somebody restored a backup, promoted a replica that lagged, or created
a new store. Or its secret or its keys are older than its store. Such a relay stops, because it could
count a report or a token twice, or release a slot twice.

If you still have the newer files, stop the relay, put them back, and start it: it continues by
itself. Otherwise end-epochs ends every epoch that has begun. It permanently destroys the epochs'
keys, reports and batches: batches that the next hop has not pulled are lost. The relay continues with
the next epoch, and shows a finding for each ended one. End-epochs also ends epochs of tasks that the
configuration no longer names; delete the files of their keys yourself. It also removes rollback marks
of epochs that their task does not have.

Stop all processes of the relay first. Without --confirm the command only prints which epochs it would
end. If several processes share a store, run it once, with the configuration of a process whose files
are intact. The other processes adopt the store's state when they start.

End-epochs is also for a process that shares a store and says "joining: no member is running", if all
processes that could let it join are lost with their files.

If the store is lost, give the relay a new one. If the secret is lost, move the store away and give the
relay a new store and a new secret. Then run end-epochs.`,
		Example: "  relay end-epochs --config relay.yaml --confirm",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := f.load()
			if err != nil {
				return err
			}
			out, err := endEpochs(cmd.Context(), config, confirm)
			if err != nil {
				return err
			}
			return cli.Print(cmd, out, out.print)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&confirm, "confirm", false, "end the epochs; without it, only list them")
	cli.Require(cmd, "config")
	return cmd
}

func endEpochs(ctx context.Context, config relay.Config, confirm bool) (*endResult, error) {
	b, err := relay.OpenRolledBack(config)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if confirm {
		if err := b.End(ctx); err != nil {
			return nil, err
		}
	}
	return &endResult{b.Cause, b.Epochs, confirm}, nil
}

func (r *endResult) print(w io.Writer) error {
	fmt.Fprintf(w, "cause: %s\n", r.Cause)
	for _, e := range r.Epochs {
		if e.Name == "" {
			fmt.Fprintf(w, "task %.8s, not configured here: epoch %d; delete the file of its keys\n", e.Task, e.Epoch)
			continue
		}
		fmt.Fprintf(w, "task %.8s, %q: epoch %d\n", e.Task, e.Name, e.Epoch)
	}
	done := "to end these epochs permanently, add --confirm"
	if r.Ended {
		done = "epochs ended; start the relay"
	}
	_, err := fmt.Fprintln(w, done)
	return err
}
