package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/relay"
)

// setBack is what end-epochs prints.
type setBack struct {
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
		Long: `End-epochs is for a relay that says "state rollback detected": its store is older than its secret or its keys
remember, as when a backup was restored, a replica that lagged was promoted, or the store is new; or
the secret or the keys are older than the store. Such a relay takes, makes and hands out nothing, as
it could count a report or a token twice, or release a slot twice.

If you still have what is newer, stop the relay, put it back, and start the relay: it goes on by
itself. If you do not, end-epochs ends every epoch that has begun. It destroys their keys, reports
and batches for good: what the next hop does not have is lost. The relay goes on with the next
epoch, and shows a finding for each that was ended. Epochs of tasks that the configuration no longer
names are ended, too; the files of their keys are yours to delete. Whatever else the secret or a key
file remembers, such as an epoch that its task does not have, is forgotten.

Stop all processes of the relay first. Without --confirm the command only prints what it would end.
Where several processes share a store, run it with the configuration of one of them, whose files are
good; the others follow the store when they start.

It is also for one of several processes on a store that says "joining: no member is running", when
those that could let it in are lost with their files.

A store that is lost: give the relay a new one. A secret that is lost: move the store away and give
the relay new ones of both. Then run end-epochs.`,
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
	cmd.Flags().BoolVar(&confirm, "confirm", false, "end them")
	cli.Require(cmd, "config")
	return cmd
}

func endEpochs(ctx context.Context, config relay.Config, confirm bool) (*setBack, error) {
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
	return &setBack{b.Cause, b.Epochs, confirm}, nil
}

func (b *setBack) print(w io.Writer) error {
	fmt.Fprintf(w, "cause: %s\n", b.Cause)
	for _, e := range b.Epochs {
		if e.Name == "" {
			fmt.Fprintf(w, "task %.8s, not configured here: epoch %d; delete the file of its keys\n", e.Task, e.Epoch)
			continue
		}
		fmt.Fprintf(w, "task %.8s, %q: epoch %d\n", e.Task, e.Name, e.Epoch)
	}
	done := "to end these epochs for good, add --confirm"
	if b.Ended {
		done = "ended, for good; start the relay"
	}
	_, err := fmt.Fprintln(w, done)
	return err
}
