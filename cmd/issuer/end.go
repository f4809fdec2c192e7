package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/issuer"
)

// endResult is the output of end-epochs.
type endResult struct {
	Tasks []issuer.EndedTask `json:"tasks"`
}

func endCommand() *cobra.Command {
	var config string
	var all bool
	cmd := &cobra.Command{
		Use:   "end-epochs --config issuer.yaml",
		Short: "End the epochs whose issued tokens are no longer known",
		Long: `An issuer does not start if its store or its keys are older than its last token: the store may have
forgotten which clients got tokens. If you have the newest files, put them back.

Otherwise end-epochs erases keys of each task that was rolled back: those of all epochs for which
tokens may have been issued. These are the epochs that have begun, the next one, and all that the store
or the keys name. The issuer issues no further tokens for these epochs; tokens that clients have stay
valid. Later epochs continue with new counts.

If the store and the keys were restored to the same moment, as by a snapshot of the machine, nothing in
them shows it. Then run end-epochs --all: it ends the epochs of every task that has issued tokens. Stop
the issuer first.`,
		Example: `  issuer end-epochs --config issuer.yaml
  issuer end-epochs --config issuer.yaml --all`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := issuer.LoadConfig(config)
			if err != nil {
				return err
			}
			end := issuer.EndEpochs
			if all {
				end = issuer.EndAllEpochs
			}
			ended, err := end(c)
			if err != nil {
				return err
			}
			return cli.Print(cmd, endResult{append([]issuer.EndedTask{}, ended...)}, func(w io.Writer) error {
				for _, e := range ended {
					fmt.Fprintf(w, "%s  %q: ended all epochs before %d, erased %d keys\n", e.ID, e.Name, e.Next, e.Ended)
				}
				if len(ended) == 0 {
					fmt.Fprintln(w, "no state rollback detected: no epoch ended")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (issuer.yaml)")
	cmd.Flags().BoolVar(&all, "all", false, "end the epochs of all tasks that have issued tokens")
	cli.Require(cmd, "config")
	return cmd
}
